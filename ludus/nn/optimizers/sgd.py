"""The optimizer `sgd`: stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from torch import Tensor
from torch.optim.sgd import sgd

from ludus.config.base import Fraction
from ludus.config.registry import register
from ludus.nn.flat import Vectors
from ludus.nn.optimizers._rule import Decay, OptimizerConfig, Rate, Rule


class Sgd(OptimizerConfig):
    """Stochastic gradient descent."""

    kind: Literal["sgd"]
    """A step along the gradient, with momentum."""
    momentum: Fraction
    """The momentum factor: the fraction of the last step that is repeated."""
    nesterov: bool
    """Use Nesterov momentum: look ahead along the momentum before the step."""
    weight_decay: Decay
    """The weight decay coefficient: how strongly weights are pulled to zero."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if nesterov is on without momentum."""
        if self.nesterov and not self.momentum:
            yield "'nesterov' is on, but 'momentum' is 0; raise it, or turn nesterov off"


@register("optimizer", "sgd")
class SgdRule(Rule):
    """Gradient descent, by torch's fused kernel."""

    Config = Sgd
    is_fused = True
    config: Sgd

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
        for part in self._slices:
            none: list[Tensor | None] = [None] * len(part.vectors)
            sgd(
                part.vectors, part.gradients(released), [*part.moments[0]] if config.momentum else none,
                foreach=False, fused=True, grad_scale=grad_divisor, found_inf=found_inf,
                weight_decay=part.decay, momentum=config.momentum, lr=learning_rate,  # type: ignore[arg-type]
                dampening=0.0, nesterov=config.nesterov, maximize=False,
            )  # fmt: skip
        self.num_steps.add_(1 if found_inf is None else 1 - found_inf)

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and the momentum after one step."""
        config = self.config
        gradient = gradient + self._decay * vector
        momentum = config.momentum * moments[0] + gradient
        if config.momentum:
            gradient = gradient + config.momentum * momentum if config.nesterov else momentum
        return vector - lr * gradient, [momentum]
