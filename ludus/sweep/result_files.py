"""Files of a search: best.yaml, schedule.json and trials.json, written whenever the best trial changes."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.config.base import TrainerConfig
from ludus.store.local import LocalStorage
from ludus.store.strict_json import one_line
from ludus.sweep.base import Base
from ludus.sweep.display import ranked
from ludus.sweep.program import SearchProgram
from ludus.sweep.trials import Leg, SweepTrial, best_trial, merged


class ResultFiles:
    """Writes what a search has found into its directory."""

    def __init__(self, program: SearchProgram, base: Base, storage: LocalStorage) -> None:
        self._program, self._base, self._storage = program, base, storage
        self._mode = program.config.metric.mode
        self._written: int | None = None

    def refresh(self, trials: Sequence[SweepTrial]) -> None:
        """Write the files, if another trial is the best one now."""
        best = best_trial(trials, self._mode)
        if best is not None and best.number != self._written:
            self.write(trials)

    def write(
        self, trials: Sequence[SweepTrial]
    ) -> tuple[SweepTrial | None, TrainerConfig | None, Sequence[Leg]]:
        """Write the files; return the best trial, its config and the values it was run with."""
        best = best_trial(trials, self._mode)
        config, schedule = None, list[Leg]()
        if best is not None:
            config = self._base.best_config(best.point)
            schedule = merged(self._program.schedule(self._storage, best))
            self._storage.write("best.yaml", config.to_yaml().encode())
            self._written = best.number
        if len(schedule) > 1:
            legs = [leg.as_json() for leg in schedule]
            self._storage.write("schedule.json", one_line(legs).encode() + b"\n")
        elif self._storage.exists("schedule.json"):
            self._storage.remove("schedule.json")
        rows = [trial.row() for trial in ranked(trials, self._mode)]
        self._storage.write("trials.json", one_line(rows).encode() + b"\n")
        return best, config, schedule
