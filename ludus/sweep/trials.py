"""Trials of a sweep: the points that were tried, their runs, and the result of it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ludus.config.base import TrainerConfig
from ludus.judge.confidence import MeanInterval
from ludus.judge.directions import Direction
from ludus.judge.scores import is_better

RunStatus = Literal["finished", "stopped", "pruned", "paused", "failed"]
TrialState = Literal["open", "complete", "pruned", "failed"]
RUNS = "runs"
"""The folder of a sweep that holds its runs."""
WHOLE: tuple[RunStatus, ...] = ("finished", "stopped")
"""How a run ends that has a value."""


@dataclass(frozen=True)
class RunOutcome:
    """How one run of a trial ended."""

    seed: int
    status: RunStatus
    reason: str | None
    value: float | None
    """The value that the trial is scored by; of a pruned run what it had reached."""
    counters: Mapping[str, int]
    num_points: int
    """How often it had logged the metric."""
    run: str
    """Its directory, below that of the sweep."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the journal."""
        return {**vars(self), "counters": dict(self.counters)}


@dataclass
class SweepTrial:
    """One point, and its runs: one for each seed."""

    number: int
    point: Mapping[str, Any]
    """The value of each key that varied."""
    batch: int
    """The number of the first trial of its batch."""
    runs: dict[int, RunOutcome] = field(default_factory=dict)
    """By seed, in the order of the file."""
    state: TrialState = "open"
    reason: str | None = None
    score: MeanInterval | None = None
    """The mean over the seeds; None unless complete."""
    is_told: bool = False
    """Whether the sampler knows how it ended."""

    @property
    def values(self) -> dict[int, float]:
        """The value of each whole run, by seed."""
        found = ((seed, run) for seed, run in self.runs.items() if run.status in WHOLE)
        return {seed: run.value for seed, run in found if run.value is not None}

    def row(self) -> dict[str, Any]:
        """Return it as a row of a table."""
        score = self.score
        return {
            "trial": self.number,
            "state": self.state,
            "reason": self.reason,
            "score": None if score is None else score.mean,
            "low": None if score is None else score.low,
            "high": None if score is None else score.high,
            "values": {str(seed): run.value for seed, run in self.runs.items()},
            "point": dict(self.point),
            "runs": [run.run for run in self.runs.values()],
        }


def best_trial(trials: Sequence[SweepTrial], mode: Direction) -> SweepTrial | None:
    """Return the complete trial with the best mean, the first of equals; None if none is complete."""
    best: SweepTrial | None = None
    for trial in trials:
        if trial.state != "complete" or trial.score is None:
            continue
        peak = None if best is None or best.score is None else best.score.mean
        if is_better(trial.score.mean, peak, mode):
            best = trial
    return best


@dataclass(frozen=True)
class Leg:
    """A stretch of a run with the same values of the keys that vary."""

    point: Mapping[str, Any]
    start: int
    """How far the counter of the search had come when they were set."""
    until: tuple[str, int] | None = None
    """A counter and a number: they end with the next value of the metric; None: with the run."""

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        until = None if self.until is None else self.until[1]
        return {"start": self.start, "until": until, "point": dict(self.point)}


def merged(legs: Sequence[Leg]) -> list[Leg]:
    """Return the legs, those that follow each other with the same values as one."""
    found: list[Leg] = []
    for leg in legs:
        if found and found[-1].point == leg.point:
            found[-1] = Leg(leg.point, found[-1].start, leg.until)
        else:
            found.append(leg)
    return found


@dataclass(frozen=True)
class SweepResult:
    """Outcome of a sweep: how it ended, its trials, and the best of them."""

    status: Literal["finished", "interrupted"]
    reason: str | None
    sweep_dir: str
    metric: str
    mode: Direction
    trials: Sequence[SweepTrial]
    best: SweepTrial | None
    best_config: TrainerConfig | None
    """The config of the best trial with the seed of the base, which is also best.yaml of the sweep."""
    schedule: Sequence[Leg]
    """The values that the best trial was run with, oldest first; more than one if they changed on the way."""
    unit: str
    """The noun for a row of the table: trial, or member of a population."""

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each trial: its number, state, score with interval, values, point and runs."""
        return [trial.row() for trial in self.trials]

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        return {
            "sweep_dir": self.sweep_dir,
            "status": self.status,
            "reason": self.reason,
            "metric": self.metric,
            "mode": self.mode,
            "best": None if self.best is None else self.best.row(),
            "trials": self.table(),
            "schedule": [leg.as_json() for leg in self.schedule],
        }
