"""The schedules that are a formula of the step; one that needs more code is a file in this folder."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ludus.config.base import Positive, PositiveFloat
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.schedule import HIGHEST, ScheduleConfig, Value, WarmedUp

Point = Annotated[list[float], Field(min_length=2, max_length=2)]


class _Formula:
    def __init__(self, config: ScheduleConfig, *, initial: float, num_steps: int) -> None:
        self._config: Any = config
        self._initial, self._num_steps = initial, num_steps


class _ToFinal(WarmedUp):
    """From the initial to the final value, then the final value."""

    final: Value
    """The value at the end."""
    total_steps: Positive | None
    """The number of steps of the whole schedule, warm-up included; null means the whole run."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if the warm-up takes the whole schedule."""
        if self.total_steps is not None and self.warmup_steps >= self.total_steps:
            yield (
                f"'warmup_steps' is {self.warmup_steps}, which leaves nothing of 'total_steps'"
                f" {self.total_steps}; make it smaller"
            )


@register("schedule", "constant")
class UnchangedSchedule(_Formula):
    """Stays at the initial value."""

    class Config(WarmedUp):
        """The initial value throughout."""

        kind: Literal["constant"]
        """Stay at the initial value."""

    def __call__(self, step: int) -> float:
        """Return the initial value."""
        return self._initial


@register("schedule", "linear")
class LinearSchedule(_Formula):
    """Interpolates linearly to the final value, and stays there."""

    class Config(_ToFinal):
        """Linear interpolation from the initial to the final value, then the final value."""

        kind: Literal["linear"]
        """Linear interpolation to the final value."""

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        final = self._config.final
        share = 1 - min(step / self._num_steps, 1.0)
        return float(final + (self._initial - final) * share)


@register("schedule", "cosine")
class CosineSchedule(_Formula):
    """Interpolates to the final value along half a cosine, and stays there."""

    class Config(_ToFinal):
        """Half a cosine from the initial to the final value, then the final value."""

        kind: Literal["cosine"]
        """Cosine annealing: go to the final value along half a cosine."""

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        final = self._config.final
        share = 0.5 * (1 + math.cos(math.pi * min(step / self._num_steps, 1.0)))
        return float(final + (self._initial - final) * share)


@register("schedule", "warm_restarts")
class WarmRestarts(_Formula):
    """Follows half a cosine in each period (SGDR)."""

    class Config(WarmedUp):
        """Half a cosine from the initial towards the final value, then again from the initial one."""

        kind: Literal["warm_restarts"]
        """Cosine annealing with warm restarts."""
        final: Value
        """The value that each period approaches."""
        first_period: Positive
        """The number of steps of the first period (T_0)."""
        period_factor: Positive
        """The length of each period as a multiple of the one before (T_mult)."""

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        config, period = self._config, self._config.first_period
        if config.period_factor == 1:
            step %= period
        while step >= period:
            step, period = step - period, period * config.period_factor
        share = 0.5 * (1 + math.cos(math.pi * step / period))
        return float(config.final + (self._initial - config.final) * share)


@register("schedule", "exponential")
class ExponentialSchedule(_Formula):
    """Decays to the final value."""

    class Config(WarmedUp):
        """initial * rate^t + final * (1 - rate^t)."""

        kind: Literal["exponential"]
        """Exponential decay to the final value."""
        rate: Annotated[float, Field(gt=0, le=1)]
        """The decay rate: the fraction of the distance to the final value that remains after each step."""
        final: Value
        """The value approached."""

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        share = self._config.rate**step
        return float(self._initial * share + self._config.final * (1 - share))


@register("schedule", "inverse")
class InverseSchedule(_Formula):
    """Falls as one over the step."""

    class Config(WarmedUp):
        """final + (initial - final) * rate / (initial * t + rate)."""

        kind: Literal["inverse"]
        """Inverse-time decay: fall as one over the step."""
        rate: PositiveFloat
        """With final 0 the value is rate / (t + rate / initial): the larger, the slower it falls."""
        final: Value
        """The value approached."""

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        config, initial = self._config, self._initial
        share = config.rate / (initial * step + config.rate)
        return float(config.final + (initial - config.final) * share)


@register("schedule", "piecewise")
class PiecewiseSchedule:
    """Interpolates linearly from point to point, and stays at the last."""

    class Config(WarmedUp):
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

    def __init__(self, config: Config, *, initial: float, num_steps: int) -> None:
        self._points = config.points
        if (first := self._points[0][1]) != initial:
            raise ConfigError(
                f"the schedule's points begin at {first:g}, but the value it belongs to is {initial:g};"
                " make them the same"
            )

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up, interpolated between its two neighbours."""
        points = self._points
        after = bisect_right(points, float(step), key=lambda point: point[0])
        if after == len(points):
            return float(points[-1][1])
        (start, low), (end, high) = points[after - 1], points[after]
        return float(low + (high - low) * (step - start) / (end - start))


@register("schedule", "one_cycle")
class OneCycleSchedule:
    """Interpolates from value to value; each phase ends at its step."""

    class Config(ScheduleConfig):
        """From the initial value up to the peak, then down to the final value, that of the last step."""

        kind: Literal["one_cycle"]
        """One cycle: rise to the peak, then fall to the final value."""
        peak: Value
        """The highest value, above the initial one."""
        final: Value
        """The value of the last step."""
        rising_share: Annotated[float, Field(gt=0, lt=1)]
        """The fraction of the steps that rise."""
        shape: Literal["cosine", "linear"]
        """Interpolate along half a cosine, or linearly."""
        three_phases: bool
        """Fall to the initial value in as many steps as it rose, and only then to the final value."""
        total_steps: Positive | None
        """The number of steps of the whole schedule; null means the whole run."""

        def problems(self) -> Iterator[str]:
            """Yield a problem if three phases do not fit."""
            if self.three_phases and self.rising_share > 0.5:
                yield (
                    f"'rising_share' is {self.rising_share:g}, but with 'three_phases' the fall takes as"
                    " long as the rise; make it 0.5 or less"
                )

        def highest(self, initial: float) -> float:
            """Return the largest of the peak, the initial and the final value."""
            return max(initial, self.peak, self.final)

    def __init__(self, config: Config, *, initial: float, num_steps: int) -> None:
        if config.peak <= initial:
            raise ConfigError(
                f"the 'peak' of one_cycle is {config.peak:g}, but it starts from {initial:g} and rises; make"
                " the peak higher, or the initial value lower"
            )
        rise, last = config.rising_share * num_steps - 1, num_steps - 1
        points = [(0.0, initial), (rise, config.peak)]
        if config.three_phases:
            points.append((2 * config.rising_share * num_steps - 2, initial))
        points.append((last, config.final))
        self._points = points
        self._is_cosine = config.shape == "cosine"

    def __call__(self, step: int) -> float:
        """Return the value at this step, interpolated between the ends of its phase."""
        (start, before), *phases = self._points
        for end, after in phases:
            if step <= end:
                done = (step - start) / (end - start) if end > start else 1.0
                if self._is_cosine:
                    done = 0.5 * (1 - math.cos(math.pi * done))
                return before + (after - before) * done
            start, before = end, after
        return before


@register("schedule", "given")
class GivenSchedule:
    """A placeholder for a script's function, which no config can hold."""

    class Config(ScheduleConfig):
        """The initial value times the result of a script's function."""

        is_of_steps: ClassVar[bool] = False

        kind: Literal["given"]
        """The function of a script: trainer.set_schedule(lambda step: factor)."""

    def __init__(self, config: Config, *, initial: float, num_steps: int) -> None:
        raise ConfigError(
            "the kind of a schedule is 'given', but the script gave none; call trainer.set_schedule(function)"
            " before fit, or choose another kind"
        )
