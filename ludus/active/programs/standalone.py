"""A stream and its retraining in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ludus.active.stream.config import RetrainingConfig, StreamConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.edge import Edge
from ludus.active.stream.link import DirectLink
from ludus.active.stream.stopping import on_stop
from ludus.config.base import FileConfig
from ludus.config.registry import register
from ludus.show.terminal import say
from ludus.store.local import LocalStorage


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
            center = Datacenter(
                config.datacenter, theirs, tell=lambda text: say(f"datacenter: {text}")
            )
            center.check(num_samples=config.edge.send_samples)
            try:
                edge = Edge(
                    config.edge, DirectLink(center), own, tell=lambda text: say(f"edge: {text}")
                )
                with on_stop(edge.is_over.set):
                    edge.run()
            finally:
                center.close()
