"""The schedule `piecewise`: linear interpolation between given points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.registry import register
from ludus.nn.schedule import HIGHEST, WarmedUp, check_first_value

Point = Annotated[list[float], Field(min_length=2, max_length=2)]


class Piecewise(WarmedUp):
    """Linear interpolation between given points, then the last value; it begins at the initial value."""

    kind: Literal["piecewise"]
    """Piecewise-linear interpolation between the points, which come after the warm-up."""
    points: Annotated[list[Point], Field(min_length=1)]
    """Pairs of a step and the value there; steps are integers that increase from 0."""

    def problems(self) -> Iterator[str]:
        """Yield a problem for each point out of order or out of range."""
        steps = [step for step, _ in self.points]
        if steps[0] != 0:
            yield f"points begin at step {steps[0]:g}; the first point is the value at step 0"
        for before, after in pairwise(steps):
            if after <= before:
                yield (
                    f"points go from step {before:g} to step {after:g}; give them in the order of"
                    " their steps, each step once"
                )
        for step, value in self.points:
            if step != int(step) or step < 0:
                yield f"points has step {step:g}; a step is a whole number from 0"
            if not 0 <= value <= HIGHEST:
                yield f"points has the value {value:g} at step {step:g}; values are 0 to {HIGHEST:g}"

    def highest(self, initial: float) -> float:
        """Return the largest value of a point."""
        return float(max(initial, *(value for _, value in self.points)))


@register("schedule", "piecewise")
class PiecewiseSchedule:
    """Interpolates linearly from point to point, and stays at the last."""

    Config = Piecewise

    def __init__(self, config: Piecewise, *, initial: float, num_steps: int) -> None:
        check_first_value(config.points[0][1], initial)
        self._points = config.points

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up, interpolated between its two neighbours."""
        points = self._points
        after = bisect_right(points, float(step), key=lambda point: point[0])
        if after == len(points):
            return float(points[-1][1])
        (start, low), (end, high) = points[after - 1], points[after]
        return float(low + (high - low) * (step - start) / (end - start))
