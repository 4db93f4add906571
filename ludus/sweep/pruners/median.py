"""Median rule: a run ends whose best value so far is worse than the median of others at the same step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator

from ludus.config.base import Count, StrictConfig
from ludus.config.registry import register
from ludus.sweep.curve import MetricCurve
from ludus.sweep.pruner import Past, Pruner, check_counter


@register("pruner", "median")
class Median(Pruner):
    """Compares with the runs that came to their end."""

    class Config(StrictConfig):
        """Options of the median rule."""

        kind: Literal["median"]
        """The median rule."""
        counter: Annotated[str, AfterValidator(check_counter)]
        """The counter by which runs are compared, such as opt_steps."""
        warmup: Count
        """No run is ended before this step."""
        startup_trials: Count
        """Number of trials that must have come to their end before any run is ended."""

    def reason(self, number: int, own: MetricCurve, others: Sequence[Past]) -> str | None:
        options = self.config
        step = own.points[-1].step(options.counter)
        whole = [other.curve for other in others if other.is_complete]
        if step < options.warmup or len(whole) < max(1, options.startup_trials):
            return None
        values = [value for value in own.values() if not math.isnan(value)]
        if not values:
            return f"median: its metric is not a number up to {options.counter} {step}"
        best = max(values) if self._mode == "max" else min(values)
        found = [_value_until(curve, options.counter, step) for curve in whole]
        there = [value for value in found if value is not None and not math.isnan(value)]
        if not there:
            return None
        middle = statistics.median(there)
        if not self.is_worse(best, middle):
            return None
        return f"median: {best:.6g} at {options.counter} {step}, where others have {middle:.6g}"


def _value_until(curve: MetricCurve, counter: str, step: int) -> float | None:
    """Return the last value at or before this step."""
    found = [point.value for point in curve.points if point.step(counter) <= step]
    return found[-1] if found else None
