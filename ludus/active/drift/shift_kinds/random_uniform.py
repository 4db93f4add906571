"""A stream with random class weights, resampled at every step."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("shift", "random_uniform")
class RandomUniform:
    """Weights sampled uniformly from 0 to 1, independently for each step."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["random_uniform"]
        """At each step every class gets a weight sampled uniformly from 0 to 1."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the sampled weights divided by their sum."""
        drawn_C = 1 - torch.rand(num_classes, dtype=torch.float64, generator=generator)
        return drawn_C / drawn_C.sum()
