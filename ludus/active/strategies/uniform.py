"""Ask for examples drawn uniformly."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.strategy import Strategy, View
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("strategy", "uniform")
class Uniform(Strategy):
    """Every example is as likely as any other: what all other strategies are compared with."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["uniform"]
        """Examples drawn uniformly."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return the first rows of the view, whose order was drawn."""
        return view.rows[:count]
