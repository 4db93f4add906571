"""The optimizer `radam`: Adam without the second moment until its variance is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ludus.config.base import Fraction, PositiveFloat
from ludus.config.registry import register
from ludus.nn.flat import Vectors
from ludus.nn.optimizers._rule import Decay, OptimizerConfig, Rate, Rule


class RAdam(OptimizerConfig):
    """Rectified Adam."""

    kind: Literal["radam"]
    """Rectified Adam: no division by the second moment until its variance is bounded."""
    beta1: Fraction
    """The decay rate of the first moment, the running mean of the gradient."""
    beta2: Fraction
    """The decay rate of the second moment, the running mean of the squared gradient."""
    eps: PositiveFloat
    """Added to the denominator, against division by zero."""
    weight_decay: Decay
    """The weight decay coefficient: how strongly weights are pulled to zero."""
    decoupled: bool
    """Shrink the weights directly, as adamw does, rather than add the weight decay to the gradient."""


@register("optimizer", "radam")
class RAdamRule(Rule):
    """Keeps the first and the second moment of the gradient."""

    Config = RAdam
    squares = (1,)
    config: RAdam

    def count_moments(self) -> int:
        """Return two: the means of the gradient and of its square."""
        return 2

    def corrections(self, num_steps: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Return the first bias correction, the rectification (0 for none), and the root of the second."""
        config, steps = self.config, self._exact(num_steps)
        power = config.beta2**steps
        longest = 2 / (1 - config.beta2) - 1
        length = longest - 2 * steps * power / (1 - power)
        ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        is_known = length > 5
        rectified = torch.where(is_known, ratio, 0.0).sqrt()
        return torch.stack([1 - config.beta1**steps, rectified, (1 - power).sqrt()]).float()

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and moments after one step."""
        config = self.config
        if config.decoupled:
            vector = vector * (1 - lr * self._decay)
        else:
            gradient = gradient + self._decay * vector
        first = torch.lerp(moments[0], gradient, 1 - config.beta1)
        second = config.beta2 * moments[1] + (1 - config.beta2) * gradient * gradient
        rectified = corrections[1]
        scale = rectified * corrections[2] / (second.sqrt() + config.eps)
        scale = torch.where(rectified > 0, scale, 1.0)
        return vector - (lr / corrections[0]) * first * scale, [first, second]
