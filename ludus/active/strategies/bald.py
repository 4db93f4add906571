"""Ask for the examples on which networks with other units dropped disagree: BALD, by mutual information.

Shapes: T draws, B examples, C classes.
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
    """The mutual information between the class of an example and the weights, by dropout."""

    class Config(ScoreConfig):
        """How it is estimated."""

        kind: Literal["bald"]
        """Mutual information of the class and the weights (BALD)."""
        draws: Several
        """How often each example is passed through the network, each time with other units dropped."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) mutual information."""
        assert seen.draws is not None
        return bald(seen.draws)


def bald(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B,) entropies of the mean of the draws, less the means of their entropies; 0 or more."""
    num_draws, num_examples, num_classes = log_probs_TBC.shape
    each_TB = entropy(log_probs_TBC.reshape(-1, num_classes)).reshape(num_draws, num_examples)
    return (entropy(mean_log_probs(log_probs_TBC)) - each_TB.mean(0)).clamp(min=0)
