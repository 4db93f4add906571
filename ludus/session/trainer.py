"""The Trainer to derive from: the one of the core, which walks in a directory with a log, a display, signals.

The core says what a walk needs around it and provides none of it. Here, above both, they meet.
"""

from __future__ import annotations

from ludus.config.base import TrainerConfig, given
from ludus.core import trainer as core
from ludus.core.first_state import FirstState
from ludus.core.runtime import Request, Runtime
from ludus.core.services import Log
from ludus.seeds import derive, seed_everything
from ludus.session import first_state
from ludus.session.logger import Logger
from ludus.session.session import Session


class Trainer(core.Trainer):
    """A trainer that keeps its runs: give it a `plan` and `parts`."""

    def __init__(self, config: object) -> None:
        """Take a typed config, or a dict or the path of a file with one."""
        super().__init__(given(config))
        self._first_state = FirstState(first_state.copied, first_state.digest)

    def seed_generators(self) -> None:
        """Set the global generators by the seed of the config, in memory as in a directory."""
        if isinstance(self.config, TrainerConfig):
            seed_everything(derive(self.config.seed, "global"))

    def log_in_memory(self) -> Log:
        """Return a logger without back ends: what it holds last decides best models and early stopping."""
        return Logger(Logger.Config(backends=[]))

    def make_runtime(self, request: Request) -> Runtime:
        """Return a session: the directory and its lock, the log, the display, signals, saving."""
        return Session(self, request)
