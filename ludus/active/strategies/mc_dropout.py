"""MC dropout: the examples with the highest predictive entropy over Monte Carlo dropout samples.

Shapes: T MC dropout samples, B examples, C classes.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from torch import Tensor

from ludus.active.scoring import Need, PoolBatch
from ludus.active.strategies.entropy import entropy
from ludus.active.strategy import ScoreConfig, ScoreStrategy, Several
from ludus.config.registry import register


class DrawsStrategy(ScoreStrategy):
    """A score over several Monte Carlo dropout samples."""

    needs: ClassVar[frozenset[Need]] = frozenset({"draws"})

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.draws = config.draws


@register("strategy", "mc_dropout")
class McDropout(DrawsStrategy):
    """The predictive entropy: the entropy of the mean prediction over MC dropout samples."""

    class Config(ScoreConfig):
        """How it is estimated."""

        kind: Literal["mc_dropout"]
        """Predictive entropy: the entropy of the mean prediction over MC dropout samples."""
        draws: Several
        """Number of Monte Carlo dropout samples per example."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) predictive entropies."""
        assert seen.draws is not None
        return predictive_entropy(seen.draws)


def predictive_entropy(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B,) entropies of the mean probabilities of (T, B, C) samples."""
    return entropy(mean_log_probs(log_probs_TBC))


def mean_log_probs(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B, C) logarithms of the mean probabilities over samples."""
    return log_probs_TBC.logsumexp(0) - math.log(len(log_probs_TBC))
