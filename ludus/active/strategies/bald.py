"""BALD: the examples with the highest mutual information of label and weights, by MC dropout.

Shapes: T MC dropout samples, B examples, C classes.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.scoring import PoolBatch
from ludus.active.strategies.entropy import entropy
from ludus.active.strategies.mc_dropout import DrawsStrategy, mean_log_probs
from ludus.active.strategy import ScoreConfig, Several
from ludus.config.registry import register


@register("strategy", "bald")
class Bald(DrawsStrategy):
    """Mutual information between the label of an example and the weights, by MC dropout."""

    class Config(ScoreConfig):
        """How it is estimated."""

        kind: Literal["bald"]
        """BALD: mutual information of the label and the weights, by MC dropout."""
        draws: Several
        """Number of Monte Carlo dropout samples per example."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) mutual information."""
        assert seen.draws is not None
        return bald(seen.draws)


def bald(log_probs_TBC: Tensor) -> Tensor:
    """Return (B,) entropy of the mean prediction minus mean entropy over samples; at least 0."""
    num_draws, num_examples, num_classes = log_probs_TBC.shape
    each_TB = entropy(log_probs_TBC.reshape(-1, num_classes)).reshape(num_draws, num_examples)
    return (entropy(mean_log_probs(log_probs_TBC)) - each_TB.mean(0)).clamp(min=0)
