"""Search program: one kind of search, which `ludus sweep` runs; each is in a file of `programs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

from ludus.core.errors import ConfigError
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.config import SearchConfig
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import SweepEngine
from ludus.sweep.trials import Leg, SweepTrial


class SearchProcess(Protocol):
    """A search in this process, which goes on from what earlier processes have recorded."""

    after_trial: Callable[[], None]
    """Called when a trial has ended, or when the search starts."""

    @property
    def trials(self) -> Mapping[int, SweepTrial]: ...
    def run(self) -> bool:
        """Search to the end; return false if it was asked to pause before."""

    def ask_to_pause(self) -> None:
        """Begin nothing more, and let runs under way save and end; a signal handler may call it."""


class SearchProgram:
    """A kind of search: how the values of runs are chosen, and which run is the best."""

    command = "sweep"
    Config: ClassVar[type[SearchConfig]]
    unit: ClassVar[str] = "trial"
    """The noun for a row of its table."""

    def __init__(self, config: SearchConfig) -> None:
        self.config = config

    def plan(self) -> str:
        """Return what it would do."""
        # The sweeper finds programs by their kind, and they are found before they are used.
        from ludus.sweep.sweeper import Sweeper

        return Sweeper(self.config).plan()

    @property
    def num_trials(self) -> int | None:
        """Number of trials in all; None if that is not known."""
        raise NotImplementedError

    def with_count(self, count: int) -> SearchConfig:
        """Return the config with another number of trials."""
        raise ConfigError(
            f"sweep(count={count}) is for a sweep of trials, and the kind of this file is"
            f" {self.config.kind}; change its own keys"
        )

    def check(self, base: Base) -> None:
        """Raise ConfigError if it cannot search the space."""

    def begin(self, storage: LocalStorage) -> None:
        """Record what the search depends on; raise LudusError if it began with something else."""

    def search(
        self, base: Base, storage: LocalStorage, engine: SweepEngine, display: SweepDisplay
    ) -> SearchProcess:
        """Return the search, with everything that is recorded."""
        raise NotImplementedError

    def trials(self, storage: LocalStorage) -> Sequence[SweepTrial]:
        """Return every trial that is recorded."""
        raise NotImplementedError

    def schedule(self, storage: LocalStorage, trial: SweepTrial) -> Sequence[Leg]:
        """Return the values that a trial was run with, from its beginning to its end."""
        return [Leg(trial.point, 0)]

    def check_export(self, path: str) -> None:
        """Raise LudusError unless the trials may be written to this file for Optuna's dashboard."""
        raise ConfigError(
            f"--export-optuna is for a sweep of trials; those of a {self.config.kind} change while they run,"
            " which a study of Optuna cannot hold"
        )

    def export_optuna(self, base: Base, storage: LocalStorage, path: str) -> None:
        """Write the trials to a SQLite file of Optuna."""
        self.check_export(path)

    def plan_lines(self, base: Base) -> tuple[str, Sequence[str], Sequence[str]]:
        """Return its plan: until when it goes on, the lines above those of the space, and those below."""
        raise NotImplementedError
