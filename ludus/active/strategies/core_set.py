"""Ask for the examples that lie furthest from all that is labelled: a core set, by greedy k-centers.

Shapes: N rows that may be asked for, L labelled ones, D features.
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
    """Covers the pool: each query is the example furthest, by features, from labels and other queries."""

    needs: ClassVar[frozenset[Need]] = frozenset({"features"})

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["core_set"]
        """Greedy k-centers on features (CoreSet)."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return the rows furthest apart; it keeps the features of the pool, and one distance a row."""
        covered_LD = view.features(view.labelled) if len(view.labelled) else None
        return view.rows[core_set(view.features(view.rows), count, covered=covered_LD).cpu()]


def core_set(features_ND: Tensor, count: int, *, covered: Tensor | None) -> Tensor:
    """Return the places of `count` rows, each the furthest from the covered rows and those before it."""
    return k_center(features_ND, count, covered=covered)
