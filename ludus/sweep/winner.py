"""The best config of a sweep, trained with seeds by which it was not chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.core.errors import LudusError
from ludus.judge.confidence import MeanInterval, mean_interval
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.config import SweepConfig
from ludus.sweep.curve import Point
from ludus.sweep.directory import BEST
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import RunEnd, SweepEngine, Task
from ludus.sweep.seed_queue import SeedQueue
from ludus.sweep.swept_run import SweptRun
from ludus.sweep.trials import WHOLE, RunOutcome, SweepTrial


@dataclass(frozen=True)
class WinnerResult:
    """The runs of the best config with other seeds."""

    trial: int
    """The trial that it is the config of."""
    runs: Sequence[RunOutcome]
    score: MeanInterval | None
    """The mean of their values: not biased by the choice, unlike the score in the sweep."""
    is_over: bool
    """Whether all seeds have run."""

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        return {
            "trial": self.trial,
            "score": None if self.score is None else vars(self.score),
            "runs": [run.as_json() for run in self.runs],
            "is_over": self.is_over,
        }


class Winner:
    """Trains one point with several seeds; a run that has come to its end is not repeated."""

    def __init__(
        self, config: SweepConfig, base: Base, storage: LocalStorage, trial: SweepTrial, engine: SweepEngine,
        display: SweepDisplay,
    ) -> None:  # fmt: skip
        self._config, self._base, self._storage = config, base, storage
        self._trial, self._display = trial, display
        self._runs: dict[int, SweptRun] = {}
        self._ended: dict[int, RunOutcome] = {}
        self._queue = SeedQueue(engine, self, storage.place)
        self.ask_to_pause = self._queue.ask_to_pause

    def train(self, seeds: Sequence[int]) -> WinnerResult:
        """Run all seeds, and return their values."""
        self._queue.run(seeds)
        runs = [self._ended[seed] for seed in seeds if seed in self._ended]
        values = [run.value for run in runs if run.status in WHOLE and run.value is not None]
        level = self._config.metric.confidence
        score = mean_interval(values, confidence=level) if values else None
        return WinnerResult(self._trial.number, runs, score, len(runs) == len(seeds))

    def task(self, seed: int) -> Task | None:
        """Return the run of a seed, unless an earlier process has come to its end."""
        metric = self._config.metric.name
        run = SweptRun(self._storage, self._trial.number, seed, metric, folder=BEST)
        if (end := run.take_up()) is not None:
            self._take(run, end)
            return None
        self._runs[seed] = run
        config = self._base.config_of(self._trial.point, seed, run.name)
        root = f"{self._storage.place}/{BEST}"
        return Task(
            self._trial.number, seed, config.model_dump(mode="json"), root, run.name, metric, False
        )

    def logged(self, task: Task, point: Point) -> None:
        """Hear of a logged value, which decides nothing."""

    def ended(self, task: Task, end: RunEnd) -> None:
        """Take the outcome of a run."""
        run = self._runs.pop(task.seed)
        if end.is_fatal:
            raise LudusError(f"the best config with seed {task.seed}: {end.reason}")
        if end.status != "interrupted":
            self._take(run, end)

    def _take(self, run: SweptRun, end: RunEnd) -> None:
        metric = self._config.metric
        outcome = run.outcome(end, take=metric.take, mode=metric.mode)
        self._ended[run.seed] = outcome
        told: Mapping[str, object] = {"value": outcome.value, "reason": outcome.reason}
        words = "  ".join(f"{name} {value}" for name, value in told.items() if value is not None)
        self._display.say(f"best config, seed {run.seed}: {outcome.status}  {words}")
