"""The optimizer `given`: a torch optimizer that a script passes to `set_optimizer`."""

from __future__ import annotations

from typing import Literal

from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.optimizers._rule import OptimizerConfig
from ludus.nn.torch_optimizer import Parameters, TorchMade


class Given(OptimizerConfig):
    """An optimizer from a script."""

    kind: Literal["given"]
    """The optimizer of a script: trainer.set_optimizer(MyOptimizer, lr=0.1)."""


@register("optimizer", "given")
class GivenOptimizer:
    """A placeholder for the optimizer, which no config can hold."""

    Config = Given

    def __init__(self, config: Given) -> None:
        self.config = config

    def make(self, parameters: Parameters) -> TorchMade:
        """Raise ConfigError: a script must give it."""
        raise ConfigError(
            "'optimizer.kind' is given, but the script gave none; call trainer.set_optimizer(...) before"
            " fit, or choose another kind"
        )
