"""The optimizer `schedule_free_adamw`: AdamW on an average of its iterates, with no decaying schedule.

Gradients are computed at y, between the iterate z and the average x of all iterates; x is evaluated.
The weights of the network are y, and the moment d = z - y gives the two others: z = y + d and
x = y + (1 - 1 / beta1) d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.config.base import Fraction, NonNegativeFloat, PositiveFloat
from ludus.config.registry import register
from ludus.nn.flat import Vectors
from ludus.nn.optimizers._rule import Decay, OptimizerConfig, Rate, Rule


class ScheduleFreeAdamW(OptimizerConfig):
    """Schedule-free AdamW (Defazio et al., 2024)."""

    kind: Literal["schedule_free_adamw"]
    """Schedule-free AdamW: evaluate an average of the iterates; use a constant schedule, with a warm-up."""
    beta1: Annotated[float, Field(gt=0, lt=1)]
    """The interpolation between iterate (0) and average (1) at which gradients are computed."""
    beta2: Fraction
    """The decay rate of the second moment, the running mean of the squared gradient."""
    eps: PositiveFloat
    """Added to the denominator, against division by zero."""
    weight_decay: Decay
    """The weight decay coefficient: how strongly the weights at which gradients are computed shrink."""
    step_power: NonNegativeFloat
    """Iterate t has weight t to this power in the average; 0 weights all equally."""
    rate_power: NonNegativeFloat
    """An iterate has the weight of the highest learning rate so far to this power; 2 is usual."""


@register("optimizer", "schedule_free_adamw")
class ScheduleFreeAdamWRule(Rule):
    """Keeps the distance from the weights to the iterate, and the second moment of the gradient."""

    Config = ScheduleFreeAdamW
    squares = (1,)
    averages = True
    config: ScheduleFreeAdamW

    def count_moments(self) -> int:
        """Return two."""
        return 2

    def first_numbers(self) -> list[Tensor]:
        """Return the sum of the iterates' weights, and the highest learning rate so far."""
        return [self._exact(0.0), self._exact(0.0)]

    def advanced(self, num_steps: Tensor, lr: Rate) -> list[Tensor]:
        """Return the same after this step."""
        config, (total, most) = self.config, self.more
        most = torch.maximum(most, self._exact(lr))
        counts = self._exact(num_steps) ** config.step_power * most**config.rate_power
        return [total + counts, most]

    def corrections(self, num_steps: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Return the bias correction of the second moment, and the weight of this iterate in the average."""
        before, after = self.more[0], more[0]
        share = torch.where(after > 0, (after - before) / after, 0.0)
        power = self.config.beta2 ** self._exact(num_steps)
        return torch.stack([1 - power, share]).float()

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the weights and moments after one step."""
        config, share = self.config, corrections[1]
        distance = moments[0]
        second = config.beta2 * moments[1] + (1 - config.beta2) * gradient * gradient
        way = gradient / ((second / corrections[0]).sqrt() + config.eps) + self._decay * vector
        kept = 1 - share
        moved = vector + share * distance + lr * (config.beta1 * kept - 1) * way
        return moved, [kept * (distance - lr * config.beta1 * way), second]

    def evaluated(self) -> Tensor:
        """Return the average of the iterates."""
        return self.vector + (1 - 1 / self.config.beta1) * self.moments[0]
