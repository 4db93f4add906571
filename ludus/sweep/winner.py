"""The best config of a sweep, trained with seeds by which it was not chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.judge.confidence import MeanInterval, mean_interval
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.config import SearchConfig
from ludus.sweep.curve import Point, has_reached
from ludus.sweep.directory import BEST
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import RunEnd, SweepEngine, Task
from ludus.sweep.search_loop import check_fatal
from ludus.sweep.seed_queue import SeedQueue
from ludus.sweep.swept_run import SweptRun
from ludus.sweep.trials import WHOLE, Leg, RunOutcome, SweepTrial


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
    unit: str
    """The noun for it in the search: trial, or member."""

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        return {
            self.unit: self.trial,
            "score": None if self.score is None else vars(self.score),
            "runs": [run.as_json() for run in self.runs],
            "is_over": self.is_over,
        }


class Winner:
    """Trains one point with several seeds; a run that has come to its end is not repeated."""

    def __init__(
        self, config: SearchConfig, base: Base, storage: LocalStorage, trial: SweepTrial,
        legs: Sequence[Leg], seeds: Sequence[int], engine: SweepEngine, display: SweepDisplay, *, unit: str,
    ) -> None:  # fmt: skip
        """`legs` are the values that each run has, one after the other."""
        self._config, self._base, self._storage = config, base, storage
        self._trial, self._display = trial, display
        self._legs, self._unit = legs, unit
        self._runs: dict[int, SweptRun] = {}
        self._ended: dict[int, RunOutcome] = {}
        self._seeds = seeds
        self._queue = SeedQueue(engine, self, storage.place, seeds)
        self.ask_to_pause = self._queue.ask_to_pause

    def train(self) -> WinnerResult:
        """Run all seeds, and return their values."""
        self._queue.run()
        runs = [self._ended[seed] for seed in self._seeds if seed in self._ended]
        values = [run.value for run in runs if run.status in WHOLE and run.value is not None]
        level = self._config.metric.confidence
        score = mean_interval(values, confidence=level) if values else None
        is_over = len(runs) == len(self._seeds)
        return WinnerResult(self._trial.number, runs, score, is_over, self._unit)

    def task(self, seed: int) -> Task | None:
        """Return the run of a seed, unless an earlier process has come to its end."""
        metric = self._config.metric.name
        run = SweptRun(self._storage, self._trial.number, seed, metric, folder=BEST)
        if (end := run.recorded_end()) is not None:
            self._take(run, end)
            return None
        self._runs[seed] = run
        leg = leg_after(self._legs, run.curve.points)
        config = self._base.config_of(leg.point, seed, run.name)
        root = f"{self._storage.place}/{BEST}"
        return Task(
            self._trial.number, seed, config.model_dump(mode="json"), root, run.name, metric, False,
            sweep=self._storage.name, until=leg.until,
        )  # fmt: skip

    def logged(self, task: Task, point: Point) -> None:
        """Take a logged value, which decides nothing."""

    def ended(self, task: Task, end: RunEnd) -> None:
        """Take the outcome of a run."""
        run = self._runs.pop(task.seed)
        check_fatal(end, f"the best config with seed {task.seed}")
        if end.status not in ("interrupted", "paused"):
            self._take(run, end)

    def _take(self, run: SweptRun, end: RunEnd) -> None:
        metric = self._config.metric
        outcome = run.outcome(end, take=metric.take, mode=metric.mode)
        self._ended[run.seed] = outcome
        fields: Mapping[str, object] = {"value": outcome.value, "reason": outcome.reason}
        words = "  ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
        self._display.say(f"best config, seed {run.seed}: {outcome.status}  {words}")


def leg_after(legs: Sequence[Leg], points: Sequence[Point]) -> Leg:
    """Return the values that a run goes on with after it has logged these points."""
    place = 0
    for point in points:
        until = legs[place].until
        place += until is not None and has_reached(point, until)
        # Where this run logs the metric more rarely, a value may be past the next legs.
        while (until := legs[place].until) and point.step(until[0]) > until[1]:
            place += 1
    return legs[place]
