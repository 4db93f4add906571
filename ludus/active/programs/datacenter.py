"""A datacenter in a separate process: it retrains the models of edges."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ludus.active.stream.config import LinkConfig, RetrainingConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.server import Server
from ludus.active.stream.stopping import on_stop
from ludus.config.base import FileConfig
from ludus.config.registry import register
from ludus.core.errors import LudusError
from ludus.show.terminal import say
from ludus.store.local import LocalStorage


@register("program", "datacenter")
class DatacenterProgram:
    """Answers edges over loopback."""

    command = "stream"

    class Config(RetrainingConfig, FileConfig):
        """The datacenter, in a separate process."""

        kind: Literal["datacenter"]
        """Retrains the models of edges."""
        link: LinkConfig
        """How edges reach it."""
        ends_with_edge: bool
        """Whether it exits when an edge has finished its stream and no other is connected; else it
        waits for the next."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def run(self, root: str) -> None:
        """Serve until stopped; work begun in this root is resumed."""
        link = self._config.link
        secret = link.secret()
        storage = LocalStorage(Path(root) / self._config.name)
        with storage.lock():
            datacenter = Datacenter(self._config, storage, tell=_tell)
            datacenter.check()
            server = Server(
                link, secret, datacenter, ends_with_edge=self._config.ends_with_edge, tell=_tell
            )
            try:
                with on_stop(server.is_over.set) as heard:
                    server.serve()
            finally:
                datacenter.close()
        _tell("ended in order; the same command goes on from here")
        if not heard and (problem := datacenter.failure) is not None:
            raise LudusError(f"no retraining succeeded; the last one failed: {problem}")


def _tell(text: str) -> None:
    say(f"datacenter: {text}")
