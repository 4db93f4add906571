"""The exponential moving average of weights (EMA): smoother than the weights, and often better."""

from __future__ import annotations

import torch
from torch import Tensor


class Ema:
    """A vector that follows another: it keeps `decay` of itself at every step that is taken."""

    def __init__(self, vector: Tensor, decay: float) -> None:
        self.vector = vector.clone()
        self._share = 1 - decay

    def follow(self, vector: Tensor, found_inf: Tensor) -> None:
        """Move towards the weights, unless found_inf holds 1: then no step was taken."""
        self.vector.lerp_(vector, self._share * (1 - found_inf))

    def follow_traced(self, vector: Tensor, is_good: Tensor) -> None:
        """Do the same as arithmetic that a compiler can fuse."""
        mean = torch.lerp(self.vector, vector, self._share)
        self.vector.copy_(torch.where(is_good, mean, self.vector))
