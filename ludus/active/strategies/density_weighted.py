"""Ask for examples that the model is unsure of and that are like many others, not for outliers.

Shapes: N rows that may be asked for, B of a batch, D features.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.scoring import Need, PoolBatch
from ludus.active.strategies.entropy import entropy
from ludus.active.strategies.margin import margin
from ludus.active.strategies.uncertainty import uncertainty
from ludus.active.strategy import ScoreConfig, ScoreStrategy, Table, View
from ludus.config.base import PositiveFloat
from ludus.config.registry import register

_CHUNK = 4096
_SCORES = {"entropy": entropy, "margin": margin, "uncertainty": uncertainty}


@register("strategy", "density_weighted")
class DensityWeighted(ScoreStrategy):
    """A score of uncertainty times the mean similarity to the pool (information density)."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(ScoreConfig):
        """What is weighted, and how much."""

        kind: Literal["density_weighted"]
        """Uncertainty times the mean similarity to the rest of the pool."""
        uncertainty: Literal["entropy", "margin", "uncertainty"]
        """Which score of uncertainty is weighted."""
        power: PositiveFloat
        """The power of the mean similarity: above 1, what is like many others counts for more."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) the scores of uncertainty alone."""
        assert seen.log_probs is not None
        return _SCORES[self.config.uncertainty](seen.log_probs)

    def scores(self, view: View, rows: Tensor) -> Tensor:
        """Return the (N,) scores, weighted by density; it keeps the features of the pool."""
        features, scores = Table(len(rows)), Table(len(rows))
        for seen in view.seen(rows, self.needs):
            assert seen.features is not None
            features.append(seen.features)
            scores.append(self.weighted(seen, view))
        scores_N = scores.filled()
        return scores_N * density(features.filled()).to(scores_N).pow(self.config.power)


def density(features_ND: Tensor) -> Tensor:
    """Return (N,) the mean similarity of each row to all, from 0 (opposite) to 1 (all point one way).

    Similarity is (1 + cosine) / 2. The mean of cosines is the cosine with the mean of unit rows, so no
    N x N matrix is made. A row of zeros has a cosine of 0 with all.
    """
    pieces = features_ND.float().split(_CHUNK)
    total_D = torch.stack([functional.normalize(rows).sum(0) for rows in pieces]).sum(0)
    mean_D = total_D / len(features_ND)
    cosines_N = torch.cat([functional.normalize(rows) @ mean_D for rows in pieces])
    return ((1 + cosines_N) / 2).clamp(0, 1)
