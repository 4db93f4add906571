"""No pruning: every trial runs all its seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.sweep.seed_pruner import SeedPruner


@register("seed_pruner", "none")
class NoSeedPruner(SeedPruner):
    """Ends no trial early."""

    looks = False

    class Config(StrictConfig):
        """No options."""

        kind: Literal["none"]
        """No trial is ended before all its seeds have run."""

    def reason(self, own: Mapping[int, float], best: Mapping[int, float]) -> None:
        return None
