"""A network, its flat weights and its optimizer: improves a loss by one step, eagerly or compiled."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ludus.nn.flat import FlatParameters
from ludus.nn.optimizer import Adam, Optimizer, Sgd

Aux = TypeVar("Aux")
Forward = Callable[..., Any]

# A step along a finite gradient stays finite unless the learning rate is out of all proportion.
STEEP = 1e3


class Learner:
    """Holds one network and moves its weights.

    The same code serves both ways of computing: eagerly the network's own parameters, views of one
    vector, are used and one fused kernel takes the step; inside a compiled function everything is
    computed from the vector and written back to it. A gradient that is not finite moves nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        config: Adam | Sgd,
        *,
        max_grad_norm: float | None,
        precision: str = "float32",
    ) -> None:
        self.module = module
        self.flat = FlatParameters(module)
        self.optimizer = Optimizer(config, self.flat)
        self._max_grad_norm = max_grad_norm
        self._is_steep = config.learning_rate > STEEP
        self._corrections = torch.zeros(2, device=self.flat.vector.device)
        self._found_inf = torch.zeros((), device=self.flat.vector.device)
        self._device = self.flat.vector.device
        self._half = precision == "bfloat16"

    def __call__(self, *inputs: Tensor) -> Any:
        """Return what the network says, with a gradient where one is asked for."""
        if torch.compiler.is_compiling():
            return self.bound(self.flat.vector)(*inputs)
        with self.autocast():
            return self.module(*inputs)

    def frozen(self, *inputs: Tensor) -> Any:
        """Return what the network says; a gradient may pass through it, but not into it."""
        return self.bound(self.flat.vector.detach())(*inputs)

    def bound(self, vector: Tensor) -> Forward:
        """Return the network as a function of its inputs, with these weights."""
        weights = dict(zip(self.flat.names, self.flat.views(vector), strict=True))

        def forward(*inputs: Tensor) -> Any:
            with self.autocast():
                return functional_call(self.module, weights, inputs)

        return forward

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the network computes: that of its precision."""
        if not self._half:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    def improve(
        self, loss_of: Callable[[Forward], tuple[Tensor, Aux]], learning_rate: Tensor
    ) -> tuple[Tensor, Tensor, Aux]:
        """Take one step down the loss; return it, the gradient's norm, and what else loss_of gave.

        `loss_of` is given the network as a function. The norm is not finite where no step was taken.
        The learning rate is a tensor: a number would be built into what is compiled or recorded.
        """
        if torch.compiler.is_compiling():

            def of_vector(vector: Tensor) -> tuple[Tensor, tuple[Tensor, Aux]]:
                loss, aux = loss_of(self.bound(vector))
                return loss, (loss, aux)

            gradient, (_, (loss, aux)) = grad_and_value(of_vector, has_aux=True)(self.flat.vector)
            return loss.detach(), self._move_traced(gradient, learning_rate), aux
        with self.autocast():
            loss, aux = loss_of(self.module)
        loss.backward()
        return loss.detach(), self._move(learning_rate), aux

    def _move(self, learning_rate: Tensor) -> Tensor:
        gradient, vector = self.flat.gradient, self.flat.vector
        # A third of vector_norm's time on a vector this small; beyond 1e19 it counts as infinite.
        norm: Tensor = torch.dot(gradient, gradient).sqrt_()
        # 0 where the norm is finite, 1 where it is not, in two operations.
        found_inf = torch.ne(norm * 0, 0, out=self._found_inf)
        scale = None
        if (limit := self._max_grad_norm) is not None:
            scale = (norm / limit).clamp_min_(1.0)
        moved = [vector, *self.optimizer.moments, self.optimizer.num_steps]
        before = [tensor.clone() for tensor in moved] if self._is_steep else []
        self.optimizer.step(learning_rate, found_inf=found_inf, grad_scale=scale)
        if before:
            is_finite = torch.isfinite(vector).all()
            for tensor, old in zip(moved, before, strict=True):
                tensor.copy_(torch.where(is_finite, tensor, old))
            norm = norm / is_finite
        gradient.zero_()
        return norm

    def _move_traced(self, gradient: Tensor, learning_rate: Tensor) -> Tensor:
        optimizer, own = self.optimizer, self.flat.vector
        norm = torch.linalg.vector_norm(gradient)
        is_good = torch.isfinite(norm)
        if self._max_grad_norm is not None:
            gradient = gradient / (norm / self._max_grad_norm).clamp(min=1.0)
        steps = optimizer.num_steps + 1
        # Stored, not only computed: else the powers would be taken again for every weight.
        self._corrections.copy_(optimizer.corrections(steps))
        vector, moments = optimizer.moved(
            own, gradient, list(optimizer.moments), self._corrections, learning_rate
        )
        if self._is_steep:
            is_good = is_good & torch.isfinite(vector).all()
        own.copy_(torch.where(is_good, vector, own))
        optimizer.num_steps.copy_(torch.where(is_good, steps, optimizer.num_steps))
        for moment, new in zip(optimizer.moments, moments, strict=True):
            moment.copy_(torch.where(is_good, new, moment))
        told: Tensor = norm / is_good
        return told

    def state_dict(self) -> dict[str, Any]:
        """Return weights and moments by parameter name."""
        return {
            "weights": self.flat.by_name(self.flat.vector),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights and moments in."""
        self.flat.load(self.flat.vector, state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])


class Target:
    """A copy of a learner's network that follows it slowly, for values to aim at."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.vector = learner.flat.vector.clone()
        self._module = copy.deepcopy(learner.module).requires_grad_(False)
        views = learner.flat.by_name(self.vector)
        for name, parameter in self._module.named_parameters():
            parameter.grad = None
            if name in views:
                parameter.data = views[name]

    def __call__(self, *inputs: Tensor) -> Any:
        """Return what the network says with the weights of the target."""
        if torch.compiler.is_compiling():
            return self._learner.bound(self.vector)(*inputs)
        with self._learner.autocast():
            return self._module(*inputs)

    def follow(self, share: float) -> None:
        """Move this share of the way to the learner's weights."""
        if share == 1.0:
            self.vector.copy_(self._learner.flat.vector)
        else:
            self.vector.lerp_(self._learner.flat.vector, share)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights by parameter name."""
        return self._learner.flat.by_name(self.vector)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights in."""
        self._learner.flat.load(self.vector, state)
