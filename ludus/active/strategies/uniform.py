"""Random sampling: uniformly chosen examples."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.strategy import Strategy, View
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("strategy", "uniform")
class Uniform(Strategy):
    """Uniform random sampling: the baseline of all other strategies."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["uniform"]
        """Uniform random sampling."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return the first rows of the view, whose order is random."""
        return view.rows[:count]
