"""A stream that shifts linearly from one class distribution to another, and back."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.drift.shift import Weights, distribution
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


@register("shift", "linear_shift")
class LinearShift:
    """A linear shift in `period` steps, back in as many, repeated."""

    class Config(StrictConfig):
        """The two distributions and the period."""

        kind: Literal["linear_shift"]
        """A mixture of two distributions whose weight changes by 1 / period per step, there and back."""
        start: Weights
        """The relative weight of each class at step 0 and every second period after."""
        end: Weights
        """The relative weight of each class after an odd number of periods."""
        period: Positive
        """Number of steps of the shift; the way back takes as many."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the mixture at a step."""
        config = self._config
        phase = step % (2 * config.period)
        share = min(phase, 2 * config.period - phase) / config.period
        start_C = distribution(config.start, num_classes, "start")
        return (1 - share) * start_C + share * distribution(config.end, num_classes, "end")
