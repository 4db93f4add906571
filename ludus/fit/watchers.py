"""Observers of a supervised run: the judge of scores, the divergence guard, milestones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import Run, states
from ludus.core.services import Log
from ludus.fit.config import FitConfig
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge
from ludus.judge.scores import Score

GUARD = DivergenceGuard(remedy="look for bad values in the data")


def make_judge(config: FitConfig, end: Callable[[Run, str], None] | None = None) -> Judge:
    """Return the judge of this config's scores: one for the best models and the target, one for patience.

    `end` is the action of early stopping; by default it stops the run.
    """
    section, scores = config.evaluation, []
    if section.keep or section.target is not None:
        scores.append(
            Score(
                "best_model",
                section.metric,
                section.mode,
                target=section.target,
                keeps_best=section.keep > 0,
                keep=max(section.keep, 1),
            )
        )
    if section.patience is not None:
        scores.append(
            Score(
                "early_stopping",
                *section.patience_metric,
                patience=section.patience,
                min_delta=section.min_delta,
                keeps_best=False,
            )
        )
    return Judge(*scores, end=end or _stop_early)


def _stop_early(run: Run, reason: str) -> None:
    run.stop(f"early stopping: {reason}")


class WatchMonitors:
    """Reports each monitored metric that has not been logged by the time of two evaluations."""

    def __init__(self, monitors: Mapping[str, str], log: Log, *, every_epochs: int) -> None:
        """`monitors` maps each config key to the metric it names; `every_epochs` is the interval of
        evaluations, 0 if there are none.
        """
        self._waiting, self._log = dict(monitors), log
        self._patience = 2 * max(every_epochs, 1)
        self._logged: set[str] = set()
        self._first: int | None = None

    def __call__(self, run: Run) -> None:
        """Check the logged metrics, and report once."""
        if not self._waiting:
            return
        if self._log.written_at == run.boundaries:
            self._logged |= {*self._log.written}
            is_there = self._log.written
            self._waiting = {k: v for k, v in self._waiting.items() if v not in is_there}
        epochs = run.counters["epoch"]
        self._first = epochs if self._first is None else self._first
        # Metrics that a hook logs after an epoch are written with the next.
        if epochs >= self._first + self._patience or (run.is_finished and epochs):
            for key, metric in self._waiting.items():
                run.tell(
                    f"'{key}' is {metric}, which nobody has logged so far, so it decides nothing; logged"
                    f" were {', '.join(sorted(self._logged))}",
                    event="monitor_missing",
                )
            self._waiting = {}


def with_judge(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved state with the part 'judge', which earlier versions stored as two parts."""
    if not isinstance(state, Mapping) or not {"best", "early_stopping"} & {*state}:
        return state
    found = {}
    if "best" in state:
        with states.fitting("best"):
            states.check_keys(state["best"], "record")
            found["best_model"] = {"best": state["best"]["record"], "peak": None, "num_bad": 0}
    if "early_stopping" in state:
        with states.fitting("early_stopping"):
            states.check_keys(state["early_stopping"], "best", "num_bad")
            peak, num_bad = (state["early_stopping"][key] for key in ("best", "num_bad"))
            found["early_stopping"] = {"best": None, "peak": peak, "num_bad": num_bad}
    judge = next(iter(found.values())) if len(found) == 1 else found
    kept = {name: part for name, part in state.items() if name not in ("best", "early_stopping")}
    return {**kept, "judge": judge}
