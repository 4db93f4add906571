"""Margin sampling: the examples with the smallest margin between the two most likely classes."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.scoring import PoolBatch
from ludus.active.strategy import ScoreConfig, ScoreStrategy
from ludus.config.registry import register


@register("strategy", "margin")
class Margin(ScoreStrategy):
    """One minus the margin between the two largest probabilities."""

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["margin"]
        """The margin between the two most likely classes, smallest first."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) one minus the margins."""
        assert seen.log_probs is not None
        return margin(seen.log_probs)


def margin(log_probs_BC: Tensor) -> Tensor:
    """Return (B,) one minus the difference of the two largest probabilities; 1 is a tie."""
    best_B2 = log_probs_BC.topk(2, dim=1).values.exp()
    return 1 - (best_B2[:, 0] - best_B2[:, 1])
