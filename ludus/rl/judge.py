"""Decide what an evaluation means: a new best policy, the goal reached, or nothing gained any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ludus.core import states
from ludus.core.run import Run
from ludus.judge.observers import is_better, read_record
from ludus.rl.config import EvaluationConfig

Keep = Callable[[str, Mapping[str, Tensor], Mapping[str, Any]], None]
METRIC = "eval/return_mean"


class Judge:
    """Hears every evaluation, in order; the best so far and the patience used up are its state."""

    def __init__(self, config: EvaluationConfig) -> None:
        self._config = config
        self.best: dict[str, Any] | None = None
        self.peak: float | None = None
        """The score that patience is measured from."""
        self.num_bad = 0

    def hear(
        self,
        run: Run,
        score: float,
        weights: Callable[[], Mapping[str, Tensor]],
        counters: Mapping[str, int],
        keep: Keep,
    ) -> None:
        """Keep the weights if the score is strictly the best, and ask for an end if there is reason.

        `counters` are those of the moment the weights were taken.
        """
        if is_better(score, None if self.best is None else self.best["score"], "max"):
            self.best = {
                "metric": METRIC,
                "mode": "max",
                "score": score,
                "model": f"models/best-{run.boundaries:010d}",
                "counters": {name: value for name, value in counters.items() if value},
            }
            keep(self.best["model"], weights(), self.best)
        config = self._config
        if config.target_return is not None and score >= config.target_return:
            run.stop(f"{METRIC} reached {score:g}, the target being {config.target_return:g}")
        if is_better(score - config.min_delta, self.peak, "max"):
            self.peak, self.num_bad = score, 0
            return
        self.num_bad += 1
        if config.patience is not None and self.num_bad >= config.patience:
            run.stop(f"{METRIC} has not improved for {self.num_bad} evaluations")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "peak": self.peak, "num_bad": self.num_bad}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "best", "peak", "num_bad")
        best = read_record(state, "best")
        peak = None if state["peak"] is None else states.number(state, "peak")
        self.best, self.peak, self.num_bad = best, peak, states.whole(state, "num_bad")
