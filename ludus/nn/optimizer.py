"""Optimizers on flat vectors: a fused kernel when run eagerly, plain arithmetic when compiled."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.optim.sgd import sgd

from ludus.config.base import Fraction, PositiveFloat, StrictConfig
from ludus.core import states
from ludus.nn.flat import FlatParameters, FlatPart, Vectors, spread

_Decay = Annotated[float, Field(ge=0, le=1e30)]
"""Within what a 32-bit number can be, for there may be one for each weight."""


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
    weight_decay: _Decay
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
    weight_decay: _Decay
    """The weight decay coefficient: how strongly weights are pulled to zero."""

    def problems(self) -> Iterator[str]:
        """Yield a momentum that is asked for and not there."""
        if self.nesterov and not self.momentum:
            yield "'nesterov' is on, but 'momentum' is 0; raise it, or turn nesterov off"


OptimizerSection = Annotated[Adam | Sgd, Field(discriminator="kind")]


class _Slices:
    """Pieces of one vector, with their gradients and moments, that have one weight decay."""

    def __init__(
        self, part: FlatPart, moments: Vectors, decay: float, pieces: list[slice] | None
    ) -> None:
        """With None, all of it."""

        if part.vector.is_cuda:
            pieces = spread([slice(0, len(part.vector))] if pieces is None else pieces)

        def cut(vector: Tensor) -> list[Tensor]:
            return [vector] if pieces is None else [vector[piece] for piece in pieces]

        self.decay = decay
        self.vectors, self.gradients = cut(part.vector), cut(part.gradient)
        self.moments = [cut(moment) for moment in moments]


class _Part:
    """What an optimizer keeps for one vector, and how it moves it."""

    def __init__(
        self, config: Adam | Sgd, part: FlatPart, undecayed: frozenset[str], home: torch.device
    ) -> None:
        """Numbers that all vectors share are at `home`."""
        self.config = config
        self._is_away = part.vector.device != home
        self.vector, self.rate = part.vector, part.rate
        count = 2 if isinstance(config, Adam) else 1
        self.moments = [torch.zeros_like(part.vector) for _ in range(count)]
        self.num_steps = torch.zeros((), device=part.vector.device)
        self._corrections = torch.zeros(2, device=part.vector.device)
        decay = config.weight_decay
        self._decay: float | Tensor = decay
        """Of all weights alike, or of each."""
        self._slices = [_Slices(part, self.moments, decay, None)]
        if decay and not undecayed.isdisjoint(part.names):
            others = part.slices(undecayed)
            self._decay = torch.full_like(part.vector, decay)
            for piece in others:
                self._decay[piece] = 0.0
            both = ((decay, part.slices({*part.names} - undecayed)), (0.0, others))
            self._slices = [_Slices(part, self.moments, own, found) for own, found in both if found]

    def step(
        self, learning_rate: float | Tensor, found_inf: Tensor | None, grad_scale: Tensor | None
    ) -> None:
        """Take one step along the gradient divided by grad_scale, unless found_inf holds 1."""
        config = self.config
        learning_rate, grad_scale = self._own(learning_rate, grad_scale)
        if isinstance(config, Adam):
            self.num_steps += 1
            if found_inf is not None:
                self.num_steps -= found_inf
            # The kernel itself: what torch.optim wraps around it costs more than it on small networks.
            move = torch._fused_adam_ if config.kind == "adam" else torch._fused_adamw_
            for part in self._slices:
                first, second = part.moments
                move(
                    part.vectors, part.gradients, first, second, [],
                    [self.num_steps] * len(part.vectors),
                    amsgrad=False, maximize=False, grad_scale=grad_scale, found_inf=found_inf,
                    beta1=config.beta1, beta2=config.beta2, lr=learning_rate,
                    weight_decay=part.decay, eps=config.eps,
                )  # fmt: skip
            return
        for part in self._slices:
            none: list[Tensor | None] = [None] * len(part.vectors)
            sgd(
                part.vectors, part.gradients, [*part.moments[0]] if config.momentum else none,
                foreach=False, fused=True, grad_scale=grad_scale, found_inf=found_inf,
                weight_decay=part.decay, momentum=config.momentum, lr=learning_rate,  # type: ignore[arg-type]
                dampening=0.0, nesterov=config.nesterov, maximize=False,
            )  # fmt: skip
        self.num_steps.add_(1 if found_inf is None else 1 - found_inf)

    def step_traced(
        self,
        gradient: Tensor,
        learning_rate: Tensor,
        found_inf: Tensor,
        grad_scale: Tensor | None,
    ) -> None:
        """Do the same along this gradient, as arithmetic that a compiler can fuse."""
        rate, grad_scale = self._own(learning_rate, grad_scale)
        if grad_scale is not None:
            gradient = gradient / grad_scale
        num_steps = self.num_steps + 1
        # Stored, not only computed: else the powers would be taken again for every weight.
        self._corrections.copy_(self.corrections(num_steps))
        vector, moments = self.moved(self.vector, gradient, self.moments, self._corrections, rate)
        is_good = found_inf == 0
        owned = [self.vector, self.num_steps, *self.moments]
        for own, new in zip(owned, [vector, num_steps, *moments], strict=True):
            own.copy_(torch.where(is_good, new, own))

    def _own(
        self, learning_rate: float | Tensor, grad_scale: Tensor | None
    ) -> tuple[float | Tensor, Tensor | None]:
        """Return the learning rate of this group and the scale, on the device of the vector."""
        if self._is_away:
            device = self.vector.device
            learning_rate = torch.as_tensor(learning_rate, device=device)
            grad_scale = None if grad_scale is None else grad_scale.to(device)
        return learning_rate if self.rate == 1.0 else learning_rate * self.rate, grad_scale

    def corrections(self, num_steps: Tensor) -> Tensor:
        """Return by how much each moment still falls short of its mean after so many steps."""
        config = self.config
        betas = (config.beta1, config.beta2) if isinstance(config, Adam) else (0.0, 0.0)
        return torch.stack([1 - beta**num_steps for beta in betas])

    def moved(
        self,
        vector: Tensor,
        gradient: Tensor,
        moments: Vectors,
        corrections: Tensor,
        lr: float | Tensor,
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


class Optimizer:
    """Updates flat vectors; its moments are vectors of the same layout, saved by parameter name.

    Of each group it counts the steps: one that was frozen has taken fewer.
    """

    def __init__(
        self, config: Adam | Sgd, flat: FlatParameters, *, undecayed: Collection[str] = ()
    ) -> None:
        """Weight decay leaves the parameters named in `undecayed` alone."""
        self.config = config
        self._flat = flat
        self.parts = [_Part(config, part, frozenset(undecayed), flat.device) for part in flat.parts]
        self.moments = [list(alike) for alike in zip(*[p.moments for p in self.parts], strict=True)]
        """Vectors of each moment."""

    @property
    def num_steps(self) -> Tensor:
        """How many steps were taken; the most, where groups were frozen for a while."""
        first, *others = [part.num_steps for part in self.parts]
        for count in others:
            first = torch.maximum(first, count.to(first.device))
        return first

    def step(
        self,
        learning_rate: float | Tensor,
        *,
        stays: Sequence[Tensor | None],
        grad_scale: Tensor | None = None,
    ) -> None:
        """Take one step along the gradients divided by grad_scale; none where `stays` holds 1."""
        for part, stay in zip(self.parts, stays, strict=True):
            part.step(learning_rate, stay, grad_scale)

    def step_traced(
        self,
        gradients: Vectors,
        learning_rate: Tensor,
        *,
        stays: Vectors,
        grad_scale: Tensor | None,
    ) -> None:
        """Do the same along these gradients, as arithmetic that a compiler can fuse."""
        for part, gradient, stay in zip(self.parts, gradients, stays, strict=True):
            part.step_traced(gradient, learning_rate, stay, grad_scale)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by parameter name, and the number of steps: of each group, if there are."""
        moments = [self._flat.by_name(moment) for moment in self.moments]
        return {"num_steps": self._counts(), "moments": moments}

    def _counts(self) -> Tensor | dict[str, Tensor]:
        """Return the number of steps, or that of each group: all parts of a group step together."""
        if not self._flat.frozen:
            return self.parts[0].num_steps
        return {
            flat.group.name: part.num_steps
            for flat, part in zip(self._flat.parts, self.parts, strict=True)
            if flat.group is not None
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved moments in."""
        self.check_state(state)
        saved = state["num_steps"]
        for flat, part in zip(self._flat.parts, self.parts, strict=True):
            part.num_steps.copy_(saved if flat.group is None else saved[flat.group.name])
        for moment, named in zip(self.moments, state["moments"], strict=True):
            self._flat.load(moment, named, finite=False)

    def check_state(self, state: Any) -> None:
        """Raise StateError unless this is the state of such an optimizer."""
        states.check_keys(state, "num_steps", "moments")
        counts = self._counts()
        if isinstance(counts, Tensor):
            _check_count(state, "num_steps", counts)
        else:
            with states.within("num_steps"):
                states.check_keys(state["num_steps"], *counts)
                for name, count in counts.items():
                    _check_count(state["num_steps"], name, count)
        moments = states.rows(state, "moments", length=len(self.moments))
        with states.within("moments"):
            for index, saved in enumerate(moments):
                with states.within(str(index)):
                    self._flat.check(saved, finite=False)
                    for name, moment in saved.items():
                        # The mean of squares is 0 or more, and infinite after a very large gradient.
                        low = 0.0 if index else -math.inf
                        states.between(name, moment, low=low)


def _check_count(state: Mapping[str, Any], key: str, own: Tensor) -> None:
    states.between(key, states.like(state, key, own, finite=True), low=0)
