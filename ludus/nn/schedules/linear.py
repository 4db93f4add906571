"""The schedule `linear`: linear interpolation from the initial to the final value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.nn.schedule import Value, WarmedUp, all_warm_up


class Linear(WarmedUp):
    """Linear interpolation from the initial to the final value, then the final value."""

    kind: Literal["linear"]
    """Linear interpolation to the final value."""
    final: Value
    """The value at the end."""
    total_steps: Positive | None
    """The number of steps of the whole schedule, warm-up included; null means the whole run."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if the warm-up takes the whole schedule."""
        yield from all_warm_up(self.warmup_steps, self.total_steps)


@register("schedule", "linear")
class LinearSchedule:
    """Interpolates linearly to the final value, and stays there."""

    Config = Linear

    def __init__(self, config: Linear, *, initial: float, num_steps: int) -> None:
        self._initial, self._final, self._num_steps = initial, config.final, num_steps

    def __call__(self, step: int) -> float:
        """Return the value at this step after the warm-up."""
        share = 1 - min(step / self._num_steps, 1.0)
        return float(self._final + (self._initial - self._final) * share)
