"""The schedule `exponential`: exponential decay to a final value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ludus.config.registry import register
from ludus.nn.schedule import Value, WarmedUp


class Exponential(WarmedUp):
    """initial * rate^t + final * (1 - rate^t)."""

    kind: Literal["exponential"]
    """Exponential decay to the final value."""
    rate: Annotated[float, Field(gt=0, le=1)]
    """The decay rate: the fraction of the distance to the final value that remains after each step."""
    final: Value
    """The value approached."""


@register("schedule", "exponential")
class ExponentialSchedule:
    """Decays to the final value."""

    Config = Exponential

    def __init__(self, config: Exponential, *, initial: float, num_steps: int) -> None:
        self._config, self._initial = config, initial

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        share = self._config.rate**step
        return float(self._initial * share + self._config.final * (1 - share))
