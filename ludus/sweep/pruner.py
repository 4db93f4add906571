"""Pruner: ends a run that does worse than others; each kind is in a file of `pruners`.

A pruner keeps nothing: what it decides follows from the curves that it is given, so that a sweep that goes
on decides as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ludus.config.base import StrictConfig
from ludus.core import counters
from ludus.core.errors import PlanError
from ludus.judge.directions import Direction
from ludus.sweep.curve import MetricCurve


@dataclass(frozen=True)
class Past:
    """A run of another trial with the same seed."""

    number: int
    """The number of its trial."""
    curve: MetricCurve
    is_complete: bool
    """Whether it came to its end."""


class Pruner:
    """Decides after each logged value whether a run goes on."""

    Config: ClassVar[type[StrictConfig]] = StrictConfig
    looks: ClassVar[bool] = True
    """Whether it looks at what runs log; if not, no run waits for it."""

    def __init__(self, config: StrictConfig, *, mode: Direction, seed: int) -> None:
        self.config: Any = config
        self._mode, self._seed = mode, seed

    def reason(self, number: int, own: MetricCurve, others: Sequence[Past]) -> str | None:
        """Return why the run of this trial is to end after the last value of its curve; None to go on."""
        raise NotImplementedError

    def is_worse(self, one: float, two: float) -> bool:
        """Return whether the first value is worse than the second."""
        return one < two if self._mode == "max" else one > two


def check_counter(counter: str) -> str:
    """Return the name of a counter; raise ValueError if there is none of this name."""
    try:
        counters.check(counter)
    except PlanError as error:
        problem = str(error).partition(" One of your own")[0]
        raise ValueError(f"is '{counter}': {problem}") from None
    return counter


def value_from(curve: MetricCurve, counter: str, step: int) -> float | None:
    """Return the first value at or after this step; None if the run has not come there."""
    return next((point.value for point in curve.points if point.step(counter) >= step), None)


def has_passed(curve: MetricCurve, counter: str, step: int) -> bool:
    """Return whether the last value is the first at or after this step."""
    *before, last = curve.points
    return last.step(counter) >= step and all(point.step(counter) < step for point in before)


def rung_reason(
    pruner: Pruner,
    own: MetricCurve,
    others: Sequence[MetricCurve],
    *,
    counter: str,
    step: int,
    reduction: int,
) -> str | None:
    """Return why a run is not among the best at this rung: one in `reduction` goes on."""
    value = own.points[-1].value
    if math.isnan(value):
        return f"its metric is not a number at {counter} {step}"
    found = [value_from(curve, counter, step) for curve in others]
    values = [one for one in found if one is not None and not math.isnan(one)] + [value]
    # The first few are compared with the best alone: none of them waits for the others.
    num_kept = max(1, len(values) // reduction)
    num_better = sum(pruner.is_worse(value, other) for other in values)
    if num_better < num_kept:
        return None
    return f"{num_better + 1} of {len(values)} at {counter} {step}, where {num_kept} go on"
