"""The optimizers without a rule of their own: AdamW, which shares Adam's, and one that a script gives."""

from __future__ import annotations

from typing import Literal

from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.optimizers._rule import OptimizerConfig
from ludus.nn.optimizers.adam import AdamRule
from ludus.nn.torch_optimizer import Parameters, TorchMade


@register("optimizer", "adamw")
class AdamWRule(AdamRule):
    """Adam with decoupled weight decay; the kind in its config tells it from Adam."""


@register("optimizer", "given")
class GivenOptimizer:
    """A placeholder for the optimizer that a script passes to `set_optimizer`, which no config can hold."""

    class Config(OptimizerConfig):
        """An optimizer from a script."""

        kind: Literal["given"]
        """The optimizer of a script: trainer.set_optimizer(MyOptimizer, lr=0.1)."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def make(self, parameters: Parameters) -> TorchMade:
        """Raise ConfigError: a script must give it."""
        raise ConfigError(
            "'optimizer.kind' is given, but the script gave none; call trainer.set_optimizer(...) before"
            " fit, or choose another kind"
        )
