"""Query by committee: the examples with the highest mean KL divergence from the consensus.

Shapes: M members, B examples, C classes.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.scoring import PoolBatch
from ludus.active.strategies.committee_vote_entropy import CommitteeStrategy
from ludus.active.strategies.mc_dropout import mean_log_probs
from ludus.active.strategy import ScoreConfig, Several
from ludus.config.registry import register


@register("strategy", "committee_kl")
class CommitteeKl(CommitteeStrategy):
    """The mean KL divergence of the members from their mean prediction."""

    class Config(ScoreConfig):
        """The size of the committee."""

        kind: Literal["committee_kl"]
        """The mean KL divergence of a committee's members from their consensus."""
        members: Several
        """Number of networks; all are trained on the same labels, each from its own initial weights."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) mean divergences."""
        assert seen.draws is not None
        return mean_kl(seen.draws)


def mean_kl(log_probs_MBC: Tensor) -> Tensor:
    """Return the (B,) means over members of KL(member || mean of all), with 0 log 0 = 0."""
    consensus_BC = mean_log_probs(log_probs_MBC).clamp(min=-1e4)
    ratios_MBC = log_probs_MBC.clamp(min=-1e4) - consensus_BC
    return (log_probs_MBC.exp() * ratios_MBC).sum(2).mean(0).clamp(min=0)
