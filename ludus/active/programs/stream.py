"""The programs of `ludus stream`: an edge, a datacenter, or both in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from ludus.active.stream.config import LinkConfig, RetrainingConfig, StreamConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.edge import Edge
from ludus.active.stream.link import DirectLink, LoopbackLink
from ludus.active.stream.server import Server
from ludus.config.base import FileConfig
from ludus.config.registry import register
from ludus.core.errors import LudusError
from ludus.process.signals import on_stop
from ludus.show.terminal import say
from ludus.store.local import LocalStorage


@register("program", "edge")
class EdgeProgram:
    """Processes a stream."""

    command = "stream"

    class Config(StreamConfig, FileConfig):
        """The edge, in a separate process."""

        kind: Literal["edge"]
        """A stream whose model is retrained by a datacenter."""
        link: LinkConfig
        """How the datacenter is reached."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def run(self, root: str) -> None:
        """Process the stream to its end; work begun in this root is resumed."""
        link = LoopbackLink(self._config.link)
        storage = LocalStorage(Path(root) / self._config.name)
        with storage.lock():
            edge = Edge(self._config, link, storage, tell=_printer("edge"))
            with on_stop(edge.is_over.set):
                edge.run()


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
        config, tell, secret = self._config, _printer("datacenter"), self._config.link.secret()
        storage = LocalStorage(Path(root) / config.name)
        with storage.lock():
            datacenter = Datacenter(config, storage, tell=tell)
            datacenter.check()
            server = Server(
                config.link, secret, datacenter, ends_with_edge=config.ends_with_edge, tell=tell
            )
            try:
                with on_stop(server.is_over.set) as heard:
                    server.serve()
            finally:
                datacenter.close()
        tell("ended in order; the same command goes on from here")
        if not heard and (problem := datacenter.failure) is not None:
            raise LudusError(f"no retraining succeeded; the last one failed: {problem}")


@register("program", "standalone")
class StandaloneProgram:
    """Processes a stream and retrains its model in the same process."""

    command = "stream"

    class Config(FileConfig):
        """Edge and datacenter in one process."""

        kind: Literal["standalone"]
        """A stream whose model is retrained here."""
        edge: StreamConfig
        """The stream."""
        datacenter: RetrainingConfig
        """How its model is retrained."""

        def problems(self) -> Iterator[str]:
            """Yield the conflicts between keys."""
            if self.edge.name == self.datacenter.name:
                yield (
                    f"'edge.name' and 'datacenter.name' are both {self.edge.name}; each has a folder of"
                    " its own, so give one another name"
                )
            if (self.edge.state_estimation is None) == (self.datacenter.state_estimation is None):
                yield "'state_estimation' is given by one of 'edge' and 'datacenter'; set the other's to null"
            training = self.datacenter.training
            for key in ("seed", "data"):
                if getattr(self.edge, key) != getattr(training, key):
                    yield (
                        f"'edge.{key}' and 'datacenter.training.{key}' are not the same, so the stream could"
                        " show what the datacenter tests on; make them agree"
                    )

    def __init__(self, config: Config) -> None:
        self._config = config

    def run(self, root: str) -> None:
        """Process the stream; work begun in this root is resumed."""
        config = self._config
        own, theirs = (
            LocalStorage(Path(root) / one.name) for one in (config.edge, config.datacenter)
        )
        with own.lock(), theirs.lock():
            center = Datacenter(config.datacenter, theirs, tell=_printer("datacenter"))
            center.check(num_samples=config.edge.send_samples)
            try:
                edge = Edge(config.edge, DirectLink(center), own, tell=_printer("edge"))
                with on_stop(edge.is_over.set):
                    edge.run()
            finally:
                center.close()


def _printer(name: str) -> Callable[[str], None]:
    return lambda text: say(f"{name}: {text}")
