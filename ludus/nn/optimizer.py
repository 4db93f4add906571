"""Optimizers on one flat vector: a fused kernel when run eagerly, plain arithmetic when compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.optim.sgd import sgd

from ludus.config.base import Fraction, NonNegativeFloat, PositiveFloat, StrictConfig
from ludus.core import states
from ludus.nn.flat import FlatParameters


class Adam(StrictConfig):
    """Adam, or AdamW where the weight decay is kept apart from the gradient."""

    kind: Literal["adam", "adamw"]
    """adam adds the weight decay to the gradient; adamw shrinks the weights directly."""
    learning_rate: PositiveFloat
    """The step size; the learning-rate schedule starts from it."""
    beta1: Fraction
    """The decay rate of the first moment, the running mean of the gradient."""
    beta2: Fraction
    """The decay rate of the second moment, the running mean of the squared gradient."""
    eps: PositiveFloat
    """Added to the denominator, against division by zero."""
    weight_decay: NonNegativeFloat
    """The weight decay coefficient: how strongly weights are pulled to zero."""


class Sgd(StrictConfig):
    """Stochastic gradient descent."""

    kind: Literal["sgd"]
    """A step along the gradient, with momentum."""
    learning_rate: PositiveFloat
    """The step size; the learning-rate schedule starts from it."""
    momentum: Fraction
    """The momentum factor: the share of the last step that is taken again."""
    nesterov: bool
    """Use Nesterov momentum: look ahead along the momentum before the step."""
    weight_decay: NonNegativeFloat
    """The weight decay coefficient: how strongly weights are pulled to zero."""

    def problems(self) -> Iterator[str]:
        """Yield a momentum that is asked for and not there."""
        if self.nesterov and not self.momentum:
            yield "'nesterov' is on, but 'momentum' is 0; raise it, or turn nesterov off"


OptimizerSection = Annotated[Adam | Sgd, Field(discriminator="kind")]


class _Group:
    """Pieces of the flat vector, with their gradients and moments, that have one weight decay."""

    def __init__(
        self, flat: FlatParameters, moments: list[Tensor], decay: float, pieces: list[slice] | None
    ) -> None:
        """With None, all of it."""

        def cut(vector: Tensor) -> list[Tensor]:
            return [vector] if pieces is None else [vector[piece] for piece in pieces]

        self.decay = decay
        self.vectors, self.gradients = cut(flat.vector), cut(flat.gradient)
        self.moments = [cut(moment) for moment in moments]


class Optimizer:
    """Updates a flat vector; its moments are vectors of the same layout, saved by parameter name."""

    def __init__(
        self, config: Adam | Sgd, flat: FlatParameters, *, undecayed: Collection[str] = ()
    ) -> None:
        """Weight decay leaves the parameters named in `undecayed` alone."""
        self.config = config
        self._flat = flat
        count = 2 if isinstance(config, Adam) else 1
        self.moments = [torch.zeros_like(flat.vector) for _ in range(count)]
        self.num_steps = torch.zeros((), device=flat.vector.device)
        self._decay: float | Tensor = config.weight_decay
        """Of all weights alike, or of each."""
        self._groups = [_Group(flat, self.moments, config.weight_decay, None)]
        if config.weight_decay and undecayed:
            self._part(undecayed)

    def _part(self, undecayed: Collection[str]) -> None:
        """Keep the pieces of the vector that have no weight decay apart from the others."""
        flat, decay = self._flat, self.config.weight_decay
        self._decay = torch.full_like(flat.vector, decay)
        decayed: list[slice] = []
        others: list[slice] = []
        for name, (start, end) in zip(
            flat.names, itertools.pairwise(itertools.accumulate(flat.sizes, initial=0)), strict=True
        ):
            (others if name in undecayed else decayed).append(slice(start, end))
            if name in undecayed:
                self._decay[start:end] = 0.0
        both = ((decay, decayed), (0.0, others))
        self._groups = [_Group(flat, self.moments, own, found) for own, found in both if found]

    def step(
        self,
        learning_rate: float | Tensor,
        *,
        found_inf: Tensor | None,
        grad_scale: Tensor | None = None,
    ) -> None:
        """Take one step along the gradient divided by grad_scale, unless found_inf holds 1."""
        config = self.config
        if isinstance(config, Adam):
            self.num_steps += 1
            if found_inf is not None:
                self.num_steps -= found_inf
            # The kernel itself: what torch.optim wraps around it costs more than it on small networks.
            move = torch._fused_adam_ if config.kind == "adam" else torch._fused_adamw_
            for group in self._groups:
                first, second = group.moments
                move(
                    group.vectors, group.gradients, first, second, [],
                    [self.num_steps] * len(group.vectors),
                    amsgrad=False, maximize=False, grad_scale=grad_scale, found_inf=found_inf,
                    beta1=config.beta1, beta2=config.beta2, lr=learning_rate,
                    weight_decay=group.decay, eps=config.eps,
                )  # fmt: skip
            return
        for group in self._groups:
            none: list[Tensor | None] = [None] * len(group.vectors)
            sgd(
                group.vectors, group.gradients, [*group.moments[0]] if config.momentum else none,
                foreach=False, fused=True, grad_scale=grad_scale, found_inf=found_inf,
                weight_decay=group.decay, momentum=config.momentum, lr=learning_rate,  # type: ignore[arg-type]
                dampening=0.0, nesterov=config.nesterov, maximize=False,
            )  # fmt: skip
        self.num_steps.add_(1 if found_inf is None else 1 - found_inf)

    def corrections(self, num_steps: Tensor) -> Tensor:
        """Return by how much each moment still falls short of its mean after so many steps."""
        config = self.config
        betas = (config.beta1, config.beta2) if isinstance(config, Adam) else (0.0, 0.0)
        return torch.stack([1 - beta**num_steps for beta in betas])

    def moved(
        self,
        vector: Tensor,
        gradient: Tensor,
        moments: list[Tensor],
        corrections: Tensor,
        lr: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and moments after one step, as arithmetic that a compiler can fuse."""
        config = self.config
        if isinstance(config, Sgd):
            gradient = gradient + self._decay * vector
            momentum = config.momentum * moments[0] + gradient
            if config.momentum:
                gradient = gradient + config.momentum * momentum if config.nesterov else momentum
            return vector - lr * gradient, [momentum]
        if config.kind == "adam":
            gradient = gradient + self._decay * vector
        else:
            vector = vector * (1 - lr * self._decay)
        first = torch.lerp(moments[0], gradient, 1 - config.beta1)
        second = config.beta2 * moments[1] + (1 - config.beta2) * gradient * gradient
        denominator = second.sqrt() / corrections[1].sqrt() + config.eps
        return vector - (lr / corrections[0]) * first / denominator, [first, second]

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by parameter name."""
        moments = [self._flat.by_name(moment) for moment in self.moments]
        return {"num_steps": self.num_steps, "moments": moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved moments in."""
        self.check_state(state)
        self.num_steps.copy_(state["num_steps"])
        for moment, saved in zip(self.moments, state["moments"], strict=True):
            self._flat.load(moment, saved, finite=False)

    def check_state(self, state: Any) -> None:
        """Raise StateError unless this is the state of such an optimizer."""
        states.check_keys(state, "num_steps", "moments")
        num_steps = states.like(state, "num_steps", self.num_steps, finite=True)
        states.between("num_steps", num_steps, low=0)
        moments = states.rows(state, "moments", length=len(self.moments))
        with states.within("moments"):
            for index, saved in enumerate(moments):
                with states.within(str(index)):
                    self._flat.check(saved, finite=False)
                    for name, moment in saved.items():
                        # The mean of squares is 0 or more, and infinite after a very large gradient.
                        low = 0.0 if index else -math.inf
                        states.between(name, moment, low=low)
