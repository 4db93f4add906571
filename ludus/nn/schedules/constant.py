"""The schedule `constant`: the initial value throughout."""

from __future__ import annotations

from typing import Literal

from ludus.config.registry import register
from ludus.nn.schedule import WarmedUp


class Constant(WarmedUp):
    """The initial value throughout."""

    kind: Literal["constant"]
    """Stay at the initial value."""


@register("schedule", "constant")
class ConstantSchedule:
    """Stays at the initial value."""

    Config = Constant

    def __init__(self, config: Constant, *, initial: float, num_steps: int) -> None:
        self._initial = initial

    def __call__(self, step: int) -> float:
        """Return the initial value."""
        return self._initial
