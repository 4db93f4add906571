"""The schedules that are a formula of the step; one that needs more code is a file in this folder."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ludus.config.base import Positive, PositiveFloat
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.schedule import ScheduleConfig, Value, WarmedUp, all_warm_up


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
        yield from all_warm_up(self.warmup_steps, self.total_steps)


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
