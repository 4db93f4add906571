"""BADGE: k-means++ on gradient embeddings, for queries that are both uncertain and diverse.

The gradient of the last layer for the most likely class is the outer product of (probabilities - one-hot)
and the features; it is stored as these two factors, so N rows cost N * (C + D) numbers, not N * C * D.

Shapes: N candidate rows, C classes, D features.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.scoring import Need
from ludus.active.spread import k_means_plus_plus
from ludus.active.strategy import Strategy, Table, View
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("strategy", "badge")
class Badge(Strategy):
    """Samples rows by k-means++ on gradient embeddings: uncertain and diverse."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["badge"]
        """k-means++ on gradient embeddings (BADGE)."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return rows sampled by k-means++ on their gradient embeddings."""
        log_probs, features = Table(len(view.rows)), Table(len(view.rows))
        for seen in view.seen(view.rows, self.needs):
            assert seen.log_probs is not None
            assert seen.features is not None
            log_probs.append(seen.log_probs)
            features.append(seen.features)
        places = badge(log_probs.filled(), features.filled(), count, generator=view.generator)
        return view.rows[places]


def badge(
    log_probs_NC: Tensor, features_ND: Tensor, count: int, *, generator: torch.Generator
) -> Tensor:
    """Return the indices of `count` rows: the largest gradient first, then by squared distance."""
    return k_means_plus_plus(
        features_ND, count, generator=generator, factor=gradient_factor(log_probs_NC)
    )


def gradient_factor(log_probs_NC: Tensor) -> Tensor:
    """Return the (N, C) gradients of the loss by the logits, with the most likely class as label."""
    is_likeliest_NC = functional.one_hot(log_probs_NC.argmax(1), log_probs_NC.shape[1])
    return log_probs_NC.exp() - is_likeliest_NC
