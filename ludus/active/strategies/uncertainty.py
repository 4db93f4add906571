"""Ask for the examples of which the model is least confident."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.scoring import PoolBatch
from ludus.active.strategy import ScoreConfig, ScoreStrategy
from ludus.config.registry import register


@register("strategy", "uncertainty")
class Uncertainty(ScoreStrategy):
    """Least confidence: one minus the probability of the likeliest class."""

    class Config(ScoreConfig):
        """What to do besides."""

        kind: Literal["uncertainty"]
        """Least confidence: 1 - max p."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) how unsure the model is of its first choice."""
        assert seen.log_probs is not None
        return uncertainty(seen.log_probs)


def uncertainty(log_probs_BC: Tensor) -> Tensor:
    """Return (B,) one minus the greatest probability of (B, C) log probabilities."""
    return 1 - log_probs_BC.max(1).values.exp()
