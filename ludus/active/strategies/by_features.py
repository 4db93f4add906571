"""Strategies that choose the queries of a round together: at random, or diverse in feature space.

Shapes: N candidate rows, L labelled rows, C classes, D features, K clusters.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.scoring import Need
from ludus.active.spread import k_center, k_means, k_means_plus_plus, mean_distance
from ludus.active.strategy import Strategy, View
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


@register("strategy", "uniform")
class Uniform(Strategy):
    """Uniform random sampling: the baseline of all other strategies."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["uniform"]
        """Uniform random sampling."""

    def choose(self, view: View, count: int) -> Tensor:
        """Return the first rows of the view, whose order is random."""
        return view.rows[:count]


@register("strategy", "core_set")
class CoreSet(Strategy):
    """Core-set: each query is furthest, in feature space, from the labelled rows and earlier queries."""

    needs: ClassVar[frozenset[Need]] = frozenset({"features"})

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["core_set"]
        """Core-set: greedy k-center on features (CoreSet)."""

    def choose(self, view: View, count: int) -> Tensor:
        """Return the k-center rows; memory holds the features of the pool and one distance per row."""
        covered_LD = view.features(view.labelled) if len(view.labelled) else None
        return view.rows[k_center(view.features(view.rows), count, covered=covered_LD).cpu()]


@register("strategy", "badge")
class Badge(Strategy):
    """BADGE: samples rows by k-means++ on gradient embeddings, uncertain and diverse.

    The gradient of the last layer for the most likely class is the outer product of (probabilities - one-hot)
    and the features; it is stored as these two factors, so N rows cost N * (C + D) numbers, not N * C * D.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["badge"]
        """k-means++ on gradient embeddings (BADGE)."""

    def choose(self, view: View, count: int) -> Tensor:
        """Return rows sampled by k-means++ on their gradient embeddings."""
        return view.rows[badge(*view.outputs(view.rows), count, generator=view.generator)]


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


@register("strategy", "typiclust")
class TypiClust(Strategy):
    """Clusters all examples by features, and queries typical examples of clusters without a label."""

    needs: ClassVar[frozenset[Need]] = frozenset({"features"})

    class Config(StrictConfig):
        """The clustering and the measure of typicality."""

        kind: Literal["typiclust"]
        """The most typical example of each cluster without a label (TypiClust)."""
        neighbours: Positive
        """Number of nearest neighbours in its cluster whose mean distance measures typicality."""
        max_clusters: Positive
        """Maximum number of clusters; otherwise one for each label and each query."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, view: View, count: int) -> Tensor:
        """Return typical rows, from clusters with the fewest labels first, then the largest."""
        features_ND = view.features(view.rows)
        covered_LD = view.features(view.labelled) if len(view.labelled) else features_ND[:0]
        places = typiclust(
            features_ND,
            count,
            covered=covered_LD,
            neighbours=self.config.neighbours,
            max_clusters=self.config.max_clusters,
            generator=view.generator,
        )
        return view.rows[places]


def typiclust(
    features_ND: Tensor,
    count: int,
    *,
    covered: Tensor,
    neighbours: int,
    max_clusters: int,
    generator: torch.Generator,
) -> Tensor:
    """Return the indices of `count` rows; `covered` are the (L, D) features of the labelled rows."""
    num_rows, num_covered = len(features_ND), len(covered)
    count = min(count, num_rows)
    num_clusters = max(min(num_covered + count, max_clusters, num_rows + num_covered), 1)
    together = torch.cat([features_ND, covered.to(features_ND)])
    cluster = k_means(together, num_clusters, generator=generator).cpu()
    labels_K = torch.bincount(cluster[num_rows:], minlength=num_clusters)
    sizes_K = torch.bincount(cluster, minlength=num_clusters)
    waiting: dict[int, list[int]] = {}
    chosen: list[int] = []
    left_K = torch.bincount(cluster[:num_rows], minlength=num_clusters)
    while len(chosen) < count:
        # Among the clusters with a row left, those with the fewest labels; among these the largest.
        rank_K = torch.where(left_K > 0, labels_K * (sizes_K.sum() + 1) - sizes_K, 2**62)
        best = int(rank_K.argmin())
        if best not in waiting:
            waiting[best] = _most_typical(together, cluster == best, num_rows, neighbours)
        chosen.append(waiting[best].pop())
        labels_K[best] += 1
        left_K[best] -= 1
    return torch.tensor(chosen, dtype=torch.int64)


def _most_typical(
    features_ND: Tensor, is_in_N: Tensor, num_rows: int, neighbours: int
) -> list[int]:
    """Return the indices below `num_rows` in one cluster, the most typical last."""
    places = is_in_N.nonzero()[:, 0]
    away = mean_distance(features_ND[places.to(features_ND.device)], neighbours).cpu()
    is_row = places < num_rows
    order = away[is_row].argsort(stable=True)
    found: list[int] = places[is_row][order].tolist()
    return found[::-1]
