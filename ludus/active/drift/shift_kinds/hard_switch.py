"""A stream that switches from one distribution of classes to the next, at once."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.active.drift.shift import Weights, distribution
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


@register("shift", "hard_switch")
class HardSwitch:
    """Each distribution holds for exactly `period` steps; after the last comes the first."""

    class Config(StrictConfig):
        """Which distributions, and for how long."""

        kind: Literal["hard_switch"]
        """Distributions that follow each other at once."""
        distributions: Annotated[list[Weights], Field(min_length=2)]
        """How likely each class is, relative to the others, in each distribution."""
        period: Positive
        """For how many steps each of them holds."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the distribution of the period that the step falls into."""
        config = self._config
        place = step // config.period % len(config.distributions)
        return distribution(config.distributions[place], num_classes, f"distributions.{place}")
