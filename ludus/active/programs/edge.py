"""An edge in a separate process: a stream whose model is retrained by a datacenter."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ludus.active.stream.config import LinkConfig, StreamConfig
from ludus.active.stream.edge import Edge
from ludus.active.stream.link import LoopbackLink
from ludus.active.stream.stopping import on_stop
from ludus.config.base import FileConfig
from ludus.config.registry import register
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
            edge = Edge(self._config, link, storage, tell=lambda text: say(f"edge: {text}"))
            with on_stop(edge.is_over.set):
                edge.run()
