"""A stream that moves from one distribution of classes to another, and back, in a straight line."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.drift.shift import Weights, distribution
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


@register("shift", "linear_shift")
class LinearShift:
    """There in `period` steps, back in as many, and so on."""

    class Config(StrictConfig):
        """From where to where, and how fast."""

        kind: Literal["linear_shift"]
        """A mixture of two distributions whose share moves by 1 / period a step, there and back."""
        start: Weights
        """How likely each class is, relative to the others, at step 0 and every second period after."""
        end: Weights
        """How likely each class is at the steps in between, after an odd number of periods."""
        period: Positive
        """How many steps the way there takes; the way back takes as many."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the mixture at a step."""
        config = self._config
        phase = step % (2 * config.period)
        share = min(phase, 2 * config.period - phase) / config.period
        start_C = distribution(config.start, num_classes, "start")
        return (1 - share) * start_C + share * distribution(config.end, num_classes, "end")
