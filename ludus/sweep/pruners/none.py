"""No pruning: every run comes to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.sweep.curve import MetricCurve
from ludus.sweep.pruner import Past, Pruner


@register("pruner", "none")
class NoPruner(Pruner):
    """Ends no run early."""

    looks = False

    class Config(StrictConfig):
        """No options."""

        kind: Literal["none"]
        """No run is ended early."""

    def reason(self, number: int, own: MetricCurve, others: Sequence[Past]) -> None:
        return None
