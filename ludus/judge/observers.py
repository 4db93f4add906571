"""Watch a run at its boundaries: stop it early, keep its best model, keep its milestones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ludus.core import states
from ludus.core.errors import ConfigError, Diverged
from ludus.core.run import Every, Run
from ludus.core.services import Log

Mode = Literal["min", "max"]

_BEST = re.compile(r"models/best-[0-9]{10}")
_MAXIMISED = ("accuracy", "reward", "return", "score", "f1", "precision", "recall", "success")
_MINIMISED = ("loss", "error", "mse", "mae", "perplexity")


def mode_of(metric: str, given: Mode | None = None) -> Mode:
    """Return whether less or more of this metric is better, by its name unless it is given."""
    if given is not None:
        return given
    words = metric.lower().replace("/", "_").split("_")
    if any(word in words for word in _MINIMISED):
        return "min"
    if any(word in words for word in _MAXIMISED):
        return "max"
    raise ConfigError(
        f"cannot tell whether '{metric}' should go up or down; set mode to min or max"
    )


def is_better(score: float, best: float | None, mode: Mode) -> bool:
    """Return whether the score is finite and strictly better than the best so far."""
    if not math.isfinite(score):
        return False
    if best is None:
        return True
    return score > best if mode == "max" else score < best


def read_record(state: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """Return the saved record of a best model, or None where none was kept."""
    if state[key] is None:
        return None
    record = states.mapping(state, key)
    with states.within(key):
        states.check_keys(record, "metric", "mode", "score", "model", "counters")
        states.text(record, "metric")
        if record["mode"] not in ("min", "max"):
            raise states.StateError("mode", f"is {record['mode']!r}; it must be min or max")
        if not _BEST.fullmatch(states.text(record, "model")):
            raise states.StateError("model", f"is {record['model']!r}, no name of a best model")
        score, counters = states.number(record, "score"), states.counts(record, "counters")
        return {**record, "score": score, "counters": counters}


class EarlyStopping:
    """Asks for an end after `patience` written values in a row that were no better.

    `ask` says which end: `Run.stop`, or leaving one loop.
    """

    def __init__(
        self,
        logger: Log,
        *,
        metric: str,
        patience: int,
        mode: Mode,
        min_delta: float,
        ask: Callable[[Run, str], None],
    ) -> None:
        self._logger = logger
        self._metric = metric
        self._patience = patience
        self._mode = mode
        self._min_delta = min_delta
        self._ask = ask
        self.best: float | None = None
        self.num_bad = 0

    def __call__(self, run: Run) -> None:
        """Look at the metric if it was written at this boundary."""
        if self._logger.written_at != run.boundaries or self._metric not in self._logger.written:
            return
        score = self._logger.written[self._metric]
        margin = -self._min_delta if self._mode == "max" else self._min_delta
        if is_better(score + margin, self.best, self._mode):
            self.best, self.num_bad = score, 0
            return
        self.num_bad += 1
        if self.num_bad >= self._patience:
            self._ask(run, f"{self._metric} has not improved for {self.num_bad} evaluations")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "num_bad": self.num_bad}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "best", "num_bad")
        best = None if state["best"] is None else states.number(state, "best")
        self.num_bad = states.whole(state, "num_bad")
        self.best = best


class BestModel:
    """Keeps the weights of the best evaluation; never those of one that was not finite."""

    def __init__(
        self,
        logger: Log,
        *,
        metric: str,
        mode: Mode,
        save: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._logger = logger
        self._metric = metric
        self._mode = mode
        self._save = save
        self.record: dict[str, Any] | None = None

    def __call__(self, run: Run) -> None:
        """Save the model if the metric written at this boundary is the best so far."""
        if self._logger.written_at != run.boundaries or self._metric not in self._logger.written:
            return
        score = self._logger.written[self._metric]
        best = None if self.record is None else self.record["score"]
        if is_better(score, best, self._mode):
            self.record = {
                "metric": self._metric,
                "mode": self._mode,
                "score": score,
                "model": f"models/best-{run.boundaries:010d}",
                "counters": {name: value for name, value in run.counters.items() if value},
            }
            self._save(self.record["model"], self.record)

    def state_dict(self) -> dict[str, Any]:
        return {"record": self.record}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "record")
        self.record = read_record(state, "record")


class Milestones:
    """Saves the weights each time a counter crosses a multiple of the interval, and at the end."""

    def __init__(
        self,
        cadence: Every,
        *,
        name: Callable[[Run], str],
        save: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._cadence = cadence
        self._name = name
        self._save = save
        self._last_name = ""

    def __call__(self, run: Run) -> None:
        """Save if it is time."""
        if self._cadence.is_due(run) or (run.is_finished and self._cadence.interval):
            name = f"models/{self._name(run)}"
            # The last epoch may be a milestone of its own; what is saved is never written again.
            if name != self._last_name:
                counters = {name: value for name, value in run.counters.items() if value}
                self._save(name, {"counters": counters})
            self._last_name = name

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._cadence.seen, "last_name": self._last_name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "seen", "last_name")
        seen, last_name = states.whole(state, "seen"), states.text(state, "last_name")
        self._cadence.seen, self._last_name = seen, last_name


class FiniteGuard:
    """Ends the run with an error as soon as a written loss is not finite.

    The bad updates were skipped on the device, so the newest checkpoint is still good.
    """

    def __init__(self, logger: Log, *, metrics: Sequence[str], check: Callable[[], None]) -> None:
        self._logger = logger
        self._metrics = tuple(metrics)
        self._check = check

    def __call__(self, run: Run) -> None:
        """Look at the metrics written at this boundary, and let `check` look at what it will."""
        if self._logger.written_at != run.boundaries:
            return
        self._check()
        for name in self._metrics:
            value = self._logger.written.get(name, 0.0)
            if not math.isfinite(value):
                raise Diverged(
                    f"{name} became {value} by opt_step {run.counters['opt_steps']}; lower the learning"
                    " rate, set max_grad_norm, or look for bad values in the data"
                )
