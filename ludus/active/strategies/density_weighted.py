"""Information density: uncertain examples that are representative of the pool, not outliers.

Shapes: N candidate rows, B of a batch, D features.
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
    """Information density: an uncertainty score times the mean similarity to the pool."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(ScoreConfig):
        """The uncertainty score and the power of the density."""

        kind: Literal["density_weighted"]
        """Information density: uncertainty times the mean similarity to the pool."""
        uncertainty: Literal["entropy", "margin", "uncertainty"]
        """The uncertainty score that is weighted."""
        power: PositiveFloat
        """The exponent of the mean similarity: above 1, density counts for more."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) the uncertainty scores alone."""
        assert seen.log_probs is not None
        return _SCORES[self.config.uncertainty](seen.log_probs)

    def scores(self, view: View, rows: Tensor) -> Tensor:
        """Return the (N,) scores, weighted by density; memory holds the features of the pool."""
        features, scores = Table(len(rows)), Table(len(rows))
        for seen in view.seen(rows, self.needs):
            assert seen.features is not None
            features.append(seen.features)
            scores.append(self.weighted(seen, view))
        scores_N = scores.filled()
        return scores_N * density(features.filled()).to(scores_N).pow(self.config.power)


def density(features_ND: Tensor) -> Tensor:
    """Return (N,) the mean similarity of each row to all, from 0 (opposite) to 1 (same direction).

    Similarity is (1 + cosine) / 2. The mean cosine is the dot product with the mean of the unit rows, so
    no N x N matrix is needed. A row of zeros has cosine 0 with all.
    """
    pieces = features_ND.float().split(_CHUNK)
    total_D = torch.stack([functional.normalize(rows).sum(0) for rows in pieces]).sum(0)
    mean_D = total_D / len(features_ND)
    cosines_N = torch.cat([functional.normalize(rows) @ mean_D for rows in pieces])
    return ((1 + cosines_N) / 2).clamp(0, 1)
