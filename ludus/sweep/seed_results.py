"""Result of one config trained with several seeds: how each run ended, and the mean of the scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ludus.judge.confidence import MeanInterval, mean_interval
from ludus.show.report.band import CONFIDENCE
from ludus.sweep.trials import WHOLE

Status = Literal["finished", "stopped", "failed", "interrupted", "waiting"]


@dataclass(frozen=True)
class SeedResult:
    """How the run of one seed ended, or how far it came."""

    seed: int
    run_dir: str
    status: Status
    """`waiting`: not begun yet."""
    reason: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    best: Mapping[str, Any] | None = None
    """Its best model: metric, score, where it is saved."""

    @property
    def score(self) -> float | None:
        """The score of its best model; None if the run is not over, or has none."""
        if self.status not in WHOLE or self.best is None:
            return None
        return float(self.best["score"])

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        return {
            "seed": self.seed,
            "run_dir": self.run_dir,
            "status": self.status,
            "reason": self.reason,
            "counters": dict(self.counters),
            "best": None if self.best is None else dict(self.best),
            "best_score": self.score,
        }


@dataclass(frozen=True)
class SeedsResult:
    """The runs of a group, by seed."""

    group: str
    runs: Mapping[int, SeedResult]

    @property
    def is_over(self) -> bool:
        """Whether every run has ended, if only by a failure."""
        return all(run.status in (*WHOLE, "failed") for run in self.runs.values())

    @property
    def failed(self) -> Sequence[SeedResult]:
        """The runs that failed."""
        return [run for run in self.runs.values() if run.status == "failed"]

    @property
    def metric(self) -> str | None:
        """The metric of the scores; None if no run has one yet."""
        return next((run.best["metric"] for run in self.runs.values() if run.best), None)

    @property
    def scores(self) -> dict[int, float]:
        """The score of each run that came to its end, by seed."""
        found = ((seed, run.score) for seed, run in self.runs.items())
        return {seed: score for seed, score in found if score is not None}

    @property
    def score(self) -> MeanInterval | None:
        """The mean of the scores with its 95% confidence interval; None without a score."""
        values = list(self.scores.values())
        return mean_interval(values, confidence=CONFIDENCE) if values else None

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        return {
            "group": self.group,
            "status": "finished" if self.is_over else "interrupted",
            "metric": self.metric,
            "score": None if self.score is None else vars(self.score),
            "runs": [run.as_json() for run in self.runs.values()],
        }
