"""The schedule `warm_restarts`: cosine annealing with warm restarts (SGDR)."""

from __future__ import annotations

import math
from typing import Literal

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.nn.schedule import Value, WarmedUp


class WarmRestarts(WarmedUp):
    """Half a cosine from the initial towards the final value, then again from the initial one."""

    kind: Literal["warm_restarts"]
    """Cosine annealing with warm restarts."""
    final: Value
    """The value that each period approaches."""
    first_period: Positive
    """The number of steps of the first period (T_0)."""
    period_factor: Positive
    """The length of each period as a multiple of the one before (T_mult)."""


@register("schedule", "warm_restarts")
class WarmRestartsSchedule:
    """Follows half a cosine in each period."""

    Config = WarmRestarts

    def __init__(self, config: WarmRestarts, *, initial: float, num_steps: int) -> None:
        self._config, self._initial = config, initial

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        config, period = self._config, self._config.first_period
        if config.period_factor == 1:
            step %= period
        while step >= period:
            step, period = step - period, period * config.period_factor
        share = 0.5 * (1 + math.cos(math.pi * step / period))
        return config.final + (self._initial - config.final) * share
