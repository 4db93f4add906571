"""The program of a sweep's file: what `ludus sweep` runs, and `ludus plan` describes."""

from __future__ import annotations

from ludus.config.registry import register
from ludus.sweep.config import SweepConfig
from ludus.sweep.sweeper import Sweeper


@register("program", "sweep")
class SweepProgram:
    """A sweep."""

    command = "sweep"
    Config = SweepConfig

    def __init__(self, config: SweepConfig) -> None:
        self._config = config

    def plan(self) -> str:
        """Return what it would do."""
        return Sweeper(self._config).plan()
