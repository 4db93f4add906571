"""The schedule `inverse`: inverse-time decay to a final value."""

from __future__ import annotations

from typing import Literal

from ludus.config.base import PositiveFloat
from ludus.config.registry import register
from ludus.nn.schedule import Value, WarmedUp


class Inverse(WarmedUp):
    """final + (initial - final) * rate / (initial * t + rate)."""

    kind: Literal["inverse"]
    """Inverse-time decay: fall as one over the step."""
    rate: PositiveFloat
    """With final 0 the value is rate / (t + rate / initial): the larger, the slower it falls."""
    final: Value
    """The value approached."""


@register("schedule", "inverse")
class InverseSchedule:
    """Falls as one over the step."""

    Config = Inverse

    def __init__(self, config: Inverse, *, initial: float, num_steps: int) -> None:
        self._config, self._initial = config, initial

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        config, initial = self._config, self._initial
        share = config.rate / (initial * step + config.rate)
        return float(config.final + (initial - config.final) * share)
