"""Core-set selection by greedy k-center: the examples furthest from all labelled ones.

Shapes: N candidate rows, L labelled rows, D features.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from ludus.active.scoring import Need
from ludus.active.spread import k_center
from ludus.active.strategy import Strategy, View
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("strategy", "core_set")
class CoreSet(Strategy):
    """Core-set: each query is furthest, in feature space, from the labelled rows and earlier queries."""

    needs: ClassVar[frozenset[Need]] = frozenset({"features"})

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["core_set"]
        """Core-set: greedy k-center on features (CoreSet)."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return the k-center rows; memory holds the features of the pool and one distance per row."""
        covered_LD = view.features(view.labelled) if len(view.labelled) else None
        return view.rows[core_set(view.features(view.rows), count, covered=covered_LD).cpu()]


def core_set(features_ND: Tensor, count: int, *, covered: Tensor | None) -> Tensor:
    """Return the indices of `count` rows, each furthest from the covered rows and those before it."""
    return k_center(features_ND, count, covered=covered)
