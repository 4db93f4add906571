"""Expected gradient length: the examples with the largest expected gradient of the last layer.

Shapes: B examples, C classes, D features.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.scoring import Need, PoolBatch
from ludus.active.strategy import ScoreConfig, ScoreStrategy
from ludus.config.registry import register


@register("strategy", "expected_gradient_length")
class ExpectedGradientLength(ScoreStrategy):
    """The norm of the last layer's gradient, in expectation over the possible labels."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["expected_gradient_length"]
        """The expected norm of the gradient of the last layer's weights."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) expected norms."""
        assert seen.log_probs is not None
        assert seen.features is not None
        return expected_gradient_length(seen.log_probs, seen.features)


def expected_gradient_length(log_probs_BC: Tensor, features_BD: Tensor) -> Tensor:
    """Return (B,) the norms of (p - one-hot of c) x features, weighted by p of each class c.

    The norm of an outer product is the product of the norms, so no gradient is computed.
    """
    probs_BC = log_probs_BC.exp()
    squares_BC = probs_BC.square()
    is_likeliest_BC = functional.one_hot(probs_BC.argmax(1), probs_BC.shape[1]).bool()
    # For the most likely class the others are summed directly: subtracting it would leave rounding errors.
    without_B1 = squares_BC.masked_fill(is_likeliest_BC, 0).sum(1, keepdim=True)
    less_BC = squares_BC.sum(1, keepdim=True) - squares_BC
    others_BC = torch.where(is_likeliest_BC, without_B1, less_BC)
    lengths_BC = (others_BC + torch.expm1(log_probs_BC).square()).sqrt()
    norms_B: Tensor = torch.linalg.vector_norm(features_BD, dim=1)
    return (probs_BC * lengths_BC).sum(1) * norms_B
