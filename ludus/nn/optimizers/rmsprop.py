"""The optimizer `rmsprop`: the gradient divided by its root mean square."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.base import Fraction, PositiveFloat
from ludus.config.registry import register
from ludus.nn.flat import Vectors
from ludus.nn.optimizers._rule import Decay, OptimizerConfig, Rate, Rule


class RmsProp(OptimizerConfig):
    """RMSprop, as torch computes it: eps is added to the root."""

    kind: Literal["rmsprop"]
    """RMSprop: divide the gradient by the root of the running mean of its square."""
    alpha: Fraction
    """The decay rate of the running mean of the squared gradient."""
    eps: PositiveFloat
    """Added to the denominator, against division by zero."""
    momentum: Fraction
    """The momentum factor: the fraction of the last step that is repeated."""
    centered: bool
    """Divide by the gradient's standard deviation: the squared mean is subtracted from the mean square."""
    weight_decay: Decay
    """The weight decay coefficient, added to the gradient: how strongly weights are pulled to zero."""


@register("optimizer", "rmsprop")
class RmsPropRule(Rule):
    """Keeps the mean square of the gradient, the momentum, and if centered the mean gradient."""

    Config = RmsProp
    squares = (0,)
    config: RmsProp

    def count_moments(self) -> int:
        """Return the number of moments in use."""
        return 1 + bool(self.config.momentum) + self.config.centered

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and moments after one step."""
        config = self.config
        gradient = gradient + self._decay * vector
        square = config.alpha * moments[0] + (1 - config.alpha) * gradient * gradient
        found, spread = [square], square
        if config.centered:
            mean = torch.lerp(moments[-1], gradient, 1 - config.alpha)
            found.append(mean)
            # Rounding may bring it below 0.
            spread = (square - mean * mean).clamp_min(0.0)
        way = gradient / (spread.sqrt() + config.eps)
        if config.momentum:
            way = config.momentum * moments[1] + way
            found.insert(1, way)
        return vector - lr * way, found
