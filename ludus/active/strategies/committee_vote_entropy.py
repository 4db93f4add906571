"""Query by committee: the examples with the highest vote entropy.

Shapes: M members, B examples, C classes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn import functional

from ludus.active.scoring import Need, PoolBatch
from ludus.active.strategies.entropy import entropy
from ludus.active.strategy import ScoreConfig, ScoreStrategy, Several
from ludus.config.registry import register


class CommitteeStrategy(ScoreStrategy):
    """A score of the predictions of several networks, trained together from different initial weights."""

    needs: ClassVar[frozenset[Need]] = frozenset({"members"})

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.members = config.members


@register("strategy", "committee_vote_entropy")
class CommitteeVoteEntropy(CommitteeStrategy):
    """Vote entropy: each member votes for its most likely class."""

    class Config(ScoreConfig):
        """The size of the committee."""

        kind: Literal["committee_vote_entropy"]
        """The entropy of the votes of a committee."""
        members: Several
        """Number of networks; all are trained on the same labels, each from its own initial weights."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) entropies of votes."""
        assert seen.draws is not None
        return vote_entropy(seen.draws)


def vote_entropy(log_probs_MBC: Tensor) -> Tensor:
    """Return the (B,) entropies, in nats, of the vote shares of the classes."""
    votes_MBC = functional.one_hot(log_probs_MBC.argmax(2), log_probs_MBC.shape[2])
    return entropy(votes_MBC.to(log_probs_MBC).mean(0).log())
