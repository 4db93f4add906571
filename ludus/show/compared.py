"""Two sides of a comparison: their runs, their scores, and how sure it is which is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ludus.judge.confidence import MeanInterval, mean_interval
from ludus.judge.directions import Direction
from ludus.show.report.band import CONFIDENCE as CONFIDENCE
from ludus.show.report.files import ReportedRun

Take = Literal["best", "last"]
Difference = tuple[str, str, str]
"""A key, its value on side A, and its value on side B."""


@dataclass(frozen=True)
class Side:
    """The runs on one side of a comparison, and the score of each."""

    name: str
    runs: Sequence[ReportedRun]
    scores: Sequence[float] = ()

    @property
    def seeds(self) -> list[object]:
        """The seed of each run."""
        return [run.about.get("seed") for run in self.runs]

    @property
    def kind(self) -> str:
        """The trainer's kind."""
        return str(self.runs[0].about.get("kind", "unknown"))

    @property
    def mean(self) -> MeanInterval:
        """The mean score with its interval."""
        return mean_interval(self.scores, confidence=CONFIDENCE)


@dataclass(frozen=True)
class Estimate:
    """A number with its bootstrap interval."""

    value: float
    low: float | None = None
    """Lower bound; None if there are too few runs."""
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Differences between two sides, and how sure it is which is better."""

    a: Side
    b: Side
    metric: str
    mode: Direction
    take: Take
    config: Sequence[Difference]
    facts: Sequence[Difference]
    """Differences of versions, host, machine and git commit."""
    difference: Estimate
    """Mean of A minus mean of B."""
    probability: Estimate | None
    """Probability that a run of A is better than one of B; None for a single run on each side."""
    pairs: Sequence[tuple[object, float, float]] = ()
    """Seed, score of A and score of B, of the seeds that both sides have."""
    paired: Estimate | None = None
    """Mean difference over the pairs; None without pairs."""
    notes: Sequence[str] = field(default_factory=list)

    @property
    def num_better(self) -> int:
        """Number of pairs in which A is better."""
        sign = 1 if self.mode == "max" else -1
        return sum(sign * (ours - theirs) > 0 for _, ours, theirs in self.pairs)

    def as_json(self) -> dict[str, Any]:
        """Return it for a program."""
        return {
            "metric": self.metric, "mode": self.mode, "take": self.take, "confidence": CONFIDENCE,
            "a": _side_json(self.a), "b": _side_json(self.b),
            "difference": vars(self.difference),
            "probability_a_is_better": None if self.probability is None else vars(self.probability),
            "pairs": [{"seed": seed, "a": ours, "b": theirs} for seed, ours, theirs in self.pairs],
            "paired_difference": None if self.paired is None else vars(self.paired),
            "config": _json(self.config), "environment": _json(self.facts),
            "notes": list(self.notes),
        }  # fmt: skip


def _side_json(side: Side) -> dict[str, Any]:
    rows = zip(side.runs, side.seeds, side.scores, strict=True)
    return {
        "name": side.name,
        "kind": side.kind,
        "mean": vars(side.mean),
        "runs": [
            {"run": run.place, "name": run.name, "seed": seed, "score": score}
            for run, seed, score in rows
        ],
    }


def _json(differences: Sequence[Difference]) -> dict[str, dict[str, str]]:
    return {key: {"a": ours, "b": theirs} for key, ours, theirs in differences}
