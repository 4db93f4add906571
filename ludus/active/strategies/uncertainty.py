"""Least confidence sampling: the examples with the lowest maximum probability."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.scoring import PoolBatch
from ludus.active.strategy import ScoreConfig, ScoreStrategy
from ludus.config.registry import register


@register("strategy", "uncertainty")
class Uncertainty(ScoreStrategy):
    """Least confidence: one minus the probability of the most likely class."""

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["uncertainty"]
        """Least confidence: 1 - max p."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) least confidence scores."""
        assert seen.log_probs is not None
        return uncertainty(seen.log_probs)


def uncertainty(log_probs_BC: Tensor) -> Tensor:
    """Return (B,) one minus the largest probability of (B, C) log probabilities."""
    return 1 - log_probs_BC.max(1).values.exp()
