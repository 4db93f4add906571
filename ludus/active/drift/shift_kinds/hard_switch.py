"""A stream that switches abruptly from one class distribution to the next."""

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
    """Each distribution lasts exactly `period` steps; the first follows the last."""

    class Config(StrictConfig):
        """The distributions and their period."""

        kind: Literal["hard_switch"]
        """Distributions with abrupt switches between them."""
        distributions: Annotated[list[Weights], Field(min_length=2)]
        """The relative weight of each class in each distribution."""
        period: Positive
        """Number of steps that each of them lasts."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the distribution of the step's period."""
        config = self._config
        place = step // config.period % len(config.distributions)
        return distribution(config.distributions[place], num_classes, f"distributions.{place}")
