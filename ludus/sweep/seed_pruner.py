"""Seed pruner: ends a trial before all its seeds have run; each kind is in a file of `seed_pruners`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ludus.config.base import StrictConfig
from ludus.judge.directions import Direction


class SeedPruner:
    """Decides after each seed of a trial whether its next one is run."""

    Config: ClassVar[type[StrictConfig]] = StrictConfig
    looks: ClassVar[bool] = True
    """Whether it looks at the values of seeds: then the seeds of a trial run one after the other."""

    def __init__(self, config: StrictConfig, *, mode: Direction) -> None:
        self.config: Any = config
        self._mode = mode

    def check(self) -> None:
        """Raise ConfigError if a library that it needs is missing."""

    def reason(self, own: Mapping[int, float], best: Mapping[int, float]) -> str | None:
        """Return why a trial is to end, by its values and those of the best trial, by seed; None to go on."""
        raise NotImplementedError
