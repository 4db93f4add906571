"""Trainer: the base class to derive from, whose runs have a directory, a log, a display and signals.

The core defines what a walk needs and provides none of it; here both are joined.
"""

from __future__ import annotations

from typing import Any

from ludus.config.base import TrainerConfig, given
from ludus.core import trainer as core
from ludus.core.first_state import FirstState
from ludus.core.runtime import Request, Runtime, TrainerServices
from ludus.core.services import Log
from ludus.seeds import derive, seed_everything
from ludus.session import first_state
from ludus.session.logger import Logger
from ludus.session.session import Session


class SessionServices(TrainerServices):
    """Typed configs, seeded generators, a log, and a session around each run."""

    def typed(self, config: object) -> object:
        """Return the config of a typed config, a dict, or the path of a config file."""
        return given(config)

    def first_state(self) -> FirstState:
        """Return what keeps initial states, with copies and digests of tensors."""
        return FirstState(first_state.copied, first_state.digest)

    def seed(self, config: object) -> None:
        """Seed the global random generators from the config's seed, also for a run in memory."""
        if isinstance(config, TrainerConfig):
            seed_everything(derive(config.seed, "global"))

    def start(self, trainer: core.Trainer, root: str) -> dict[str, Any] | None:
        """Load what a new run takes over from another, as the config's section `start` says."""
        if getattr(trainer.config, "start", None) is None:
            return None
        from ludus.session.start import start

        return start(trainer, root)

    def log_in_memory(self) -> Log:
        """Return a logger without back ends: its last write decides best models and early stopping."""
        return Logger(Logger.Config(backends=[]))

    def runtime(self, trainer: core.Trainer, request: Request) -> Runtime:
        """Return a session: the directory and its lock, the log, the display, signals, checkpoints."""
        return Session(trainer, request)


class Trainer(core.Trainer):
    """A trainer that saves its runs; subclasses write `plan` and `parts`."""

    services = SessionServices()
