"""Trainer: the base class to derive from, whose runs have a directory, a log, a display and signals.

The core defines what a walk needs and provides none of it; here both are joined.
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
    """A trainer that saves its runs; subclasses write `plan` and `parts`."""

    def __init__(self, config: object) -> None:
        """Take a typed config, a dict, or the path of a config file."""
        super().__init__(given(config))
        self._first_state = FirstState(first_state.copied, first_state.digest)

    def seed_generators(self) -> None:
        """Seed the global random generators from the config's seed, also for a run in memory."""
        if isinstance(self.config, TrainerConfig):
            seed_everything(derive(self.config.seed, "global"))

    def log_in_memory(self) -> Log:
        """Return a logger without back ends: its last write decides best models and early stopping."""
        return Logger(Logger.Config(backends=[]))

    def make_runtime(self, request: Request) -> Runtime:
        """Return a session: the directory and its lock, the log, the display, signals, checkpoints."""
        return Session(self, request)
