"""Entropy sampling: the examples with the highest entropy of the predicted class probabilities."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.scoring import PoolBatch
from ludus.active.strategy import ScoreConfig, ScoreStrategy
from ludus.config.registry import register


@register("strategy", "entropy")
class Entropy(ScoreStrategy):
    """The entropy of the predicted class probabilities."""

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["entropy"]
        """The entropy of the predicted classes."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) entropies."""
        assert seen.log_probs is not None
        return entropy(seen.log_probs)


def entropy(log_probs_BC: Tensor) -> Tensor:
    """Return the (B,) entropies, in nats, of (B, C) log probabilities, with 0 log 0 = 0."""
    return -(log_probs_BC.exp() * log_probs_BC.clamp(min=-1e4)).sum(1)
