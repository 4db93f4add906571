"""A stream without drift: the same class distribution at every step."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.drift.shift import Weights, distribution
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("shift", "static")
class Static:
    """A constant distribution."""

    class Config(StrictConfig):
        """The class weights."""

        kind: Literal["static"]
        """The same distribution at every step."""
        weights: Weights | None
        """The relative weight of each class; null: all alike."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the constant distribution."""
        weights = self._config.weights
        return distribution(
            [1.0] * num_classes if weights is None else weights, num_classes, "weights"
        )
