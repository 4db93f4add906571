"""Ask for examples drawn uniformly."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from ludus.active.scoring import Need
from ludus.active.strategy import View
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("strategy", "uniform")
class Uniform:
    """Every example is as likely as any other: what all other strategies are compared with."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    members = 1

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["uniform"]
        """Examples drawn uniformly."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return the first rows of the view, whose order was drawn."""
        return view.rows[:count]
