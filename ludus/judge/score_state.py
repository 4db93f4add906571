"""State of one score: the models it keeps, and the value that patience is measured from."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ludus.core import states
from ludus.judge.directions import Direction
from ludus.judge.scores import Score, is_better


class Best(TypedDict):
    """Record of a saved model and its score; stored, and passed to commands, as it is."""

    metric: str
    mode: Direction
    score: float
    model: str
    """Directory of the weights; it never changes."""
    counters: dict[str, int]
    """Counters at which the weights were taken."""


@dataclass
class ScoreState:
    """Results so far by one score."""

    kept: list[Best] = field(default_factory=list)
    """Best models, the best first; of equal ones the earlier."""
    peak: float | None = None
    """Value that patience is measured from."""
    num_bad: int = 0
    """Number of consecutive evaluations that were no better than the peak."""

    @property
    def best(self) -> Best | None:
        """The best of them; None before there is one."""
        return self.kept[0] if self.kept else None

    def enter(self, best: Best, *, keep: int) -> bool:
        """Insert a model if it is among the `keep` best; return whether it is."""
        # Two models judged at one boundary would share a name, so only the better is kept.
        others = [one for one in self.kept if one["model"] != best["model"]]
        same = [one["score"] for one in self.kept if one["model"] == best["model"]]
        if same and not is_better(best["score"], same[0], best["mode"]):
            return False
        place = 0
        while place < len(others) and not is_better(
            best["score"], others[place]["score"], best["mode"]
        ):
            place += 1
        if place >= keep or not is_better(best["score"], None, best["mode"]):
            return False
        self.kept = [*others[:place], best, *others[place:]][:keep]
        return True

    def forget(self, names: Collection[str] | None) -> None:
        """Forget the models with these names; None forgets all."""
        self.kept = [one for one in self.kept if names is not None and one["model"] not in names]

    def state(self, score: Score) -> dict[str, Any]:
        """Return the state to save; it lists further models only if several may be kept."""
        more = {"runners_up": self.kept[1:]} if score.keep > 1 else {}
        return {"best": self.best, "peak": self.peak, "num_bad": self.num_bad, **more}


def read_score_state(state: Mapping[str, Any], score: Score, prefix: str | None) -> ScoreState:
    """Read a saved state; `prefix` begins the names of its models, and is None if none are kept."""
    more = ["runners_up"] if score.keep > 1 else []
    states.check_keys(state, "best", "peak", "num_bad", *more)
    kept = [] if state["best"] is None else [_read_best(state, "best", prefix)]
    if more:
        runners_up = states.rows(state, "runners_up")
        if len(runners_up) > (score.keep - 1 if kept else 0):
            raise states.StateError(
                "runners_up", f"has more models than 'keep' {score.keep} lets it"
            )
        with states.within("runners_up"):
            kept += [_read_best(runners_up, index, prefix) for index in range(len(runners_up))]
    peak = None if state["peak"] is None else states.number(state, "peak")
    return ScoreState(kept, peak, states.whole(state, "num_bad"))


def _read_best(state: states.Holds, key: states.Key, prefix: str | None) -> Best:
    best = states.mapping(state, key)
    with states.within(str(key)):
        states.check_keys(best, "metric", "mode", "score", "model", "counters")
        if best["mode"] not in ("min", "max"):
            raise states.StateError("mode", f"is {best['mode']!r}; it must be min or max")
        model = states.text(best, "model")
        if prefix is None or not re.fullmatch(re.escape(prefix) + "[0-9]{10}", model):
            raise states.StateError("model", f"is {model!r}, no name of a best model")
        return {
            "metric": states.text(best, "metric"),
            "mode": best["mode"],
            "score": states.number(best, "score"),
            "model": model,
            "counters": states.counts(best, "counters"),
        }
