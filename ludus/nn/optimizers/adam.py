"""The optimizer `adam`, and the code it shares with `adamw`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ludus.config.base import Fraction, PositiveFloat
from ludus.config.registry import register
from ludus.nn.flat import Vectors
from ludus.nn.optimizers._rule import Decay, OptimizerConfig, Rate, Rule


class Adam(OptimizerConfig):
    """Adam, or AdamW with decoupled weight decay."""

    kind: Literal["adam", "adamw"]
    """adam adds the weight decay to the gradient; adamw shrinks the weights directly."""
    beta1: Fraction
    """The decay rate of the first moment, the running mean of the gradient."""
    beta2: Fraction
    """The decay rate of the second moment, the running mean of the squared gradient."""
    eps: PositiveFloat
    """Added to the denominator, against division by zero."""
    weight_decay: Decay
    """The weight decay coefficient: how strongly weights are pulled to zero."""


@register("optimizer", "adam")
class AdamRule(Rule):
    """Adam and AdamW, by torch's fused kernels."""

    Config = Adam
    is_fused = True
    squares = (1,)
    config: Adam

    def count_moments(self) -> int:
        """Return two: the means of the gradient and of its square."""
        return 2

    def step(
        self,
        learning_rate: Rate,
        found_inf: Tensor | None,
        grad_divisor: Tensor | None,
        released: Sequence[Tensor] | None = None,
    ) -> None:
        """Take one step by a fused kernel."""
        config = self.config
        learning_rate, grad_divisor = self._own(learning_rate, grad_divisor)
        self.num_steps += 1
        if found_inf is not None:
            self.num_steps -= found_inf
        # The kernel itself: torch.optim's wrapper costs more than the kernel on small networks.
        move = torch._fused_adam_ if config.kind == "adam" else torch._fused_adamw_
        for part in self._slices:
            first, second = part.moments
            move(
                part.vectors, part.gradients(released), first, second, [],
                [self.num_steps] * len(part.vectors),
                amsgrad=False, maximize=False, grad_scale=grad_divisor, found_inf=found_inf,
                beta1=config.beta1, beta2=config.beta2, lr=learning_rate,
                weight_decay=part.decay, eps=config.eps,
            )  # fmt: skip

    def corrections(self, num_steps: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Return the bias correction of each moment after this many steps."""
        return torch.stack([1 - beta**num_steps for beta in (self.config.beta1, self.config.beta2)])

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and moments after one step."""
        config = self.config
        if config.kind == "adam":
            gradient = gradient + self._decay * vector
        else:
            vector = vector * (1 - lr * self._decay)
        first = torch.lerp(moments[0], gradient, 1 - config.beta1)
        second = config.beta2 * moments[1] + (1 - config.beta2) * gradient * gradient
        denominator = second.sqrt() / corrections[1].sqrt() + config.eps
        return vector - (lr / corrections[0]) * first / denominator, [first, second]
