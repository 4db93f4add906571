"""A network, its flat weights and its optimizer: improves a loss by one step, eagerly or compiled."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ludus.core import states
from ludus.nn.engines.gate import is_plain_kind
from ludus.nn.flat import FlatParameters
from ludus.nn.held import Held, check_named, load_named
from ludus.nn.optimizer import Adam, Optimizer, Sgd

Aux = TypeVar("Aux")
Forward = Callable[..., Any]

# A step along a finite gradient stays finite unless the learning rate is out of all proportion.
STEEP = 1e3


class Learner:
    """Holds one network and moves its weights.

    The network is in eval mode, whoever calls it, except while its own loss is computed in `improve`:
    then it is in train mode, and its buffers (the running statistics of batch norm) change.

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
        undecayed: Collection[str] = (),
    ) -> None:
        """Weight decay leaves the parameters named in `undecayed` alone."""
        self.module = module
        self._modal = _parts_with_modes(module)
        self.flat = FlatParameters(module)
        self.held = Held(module, without=self.flat.names)
        # The compiled update works on these very tensors; modules that replace theirs are not compiled.
        self._buffers = dict(module.named_buffers())
        self.optimizer = Optimizer(config, self.flat, undecayed=undecayed)
        self._max_grad_norm = max_grad_norm
        self._is_steep = config.learning_rate > STEEP
        self._corrections = torch.zeros(2, device=self.flat.vector.device)
        self._found_inf = torch.zeros((), device=self.flat.vector.device)
        self._device = self.flat.vector.device
        self._half = precision == "bfloat16"

    def __call__(self, *inputs: Tensor) -> Any:
        """Return what the network says in eval mode, with a gradient where one is asked for."""
        if torch.compiler.is_compiling():
            return self.bound(self.flat.vector)(*inputs)
        with self.autocast():
            return self.module(*inputs)

    def frozen(self, *inputs: Tensor) -> Any:
        """Return what the network says in eval mode; a gradient may pass through it, but not into it."""
        return self.bound(self.flat.vector.detach())(*inputs)

    def bound(self, vector: Tensor, buffers: Mapping[str, Tensor] | None = None) -> Forward:
        """Return the network as a function of its inputs, with these weights and buffers."""
        weights = dict(zip(self.flat.names, self.flat.views(vector), strict=True))
        weights |= buffers or {}

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
        self,
        loss_of: Callable[[Forward], tuple[Tensor, Aux]],
        learning_rate: Tensor,
        *,
        in_train_mode: bool = True,
    ) -> tuple[Tensor, Tensor, Aux]:
        """Take one step down the loss; return it, the gradient's norm, and what else loss_of gave.

        `loss_of` is given the network as a function. The norm is not finite where no step was taken;
        the buffers are then those from before. The learning rate is a tensor: a number would be built
        into what is compiled or recorded.
        """
        if torch.compiler.is_compiling():
            return self._improve_traced(loss_of, learning_rate, in_train_mode)
        before = self._buffers_before()
        self._set_mode(in_train_mode)
        try:
            with self.autocast():
                loss, aux = loss_of(self.module)
        finally:
            self._set_mode(False)
        loss.backward()
        norm = self._move(learning_rate)
        self._keep_buffers(before, norm)
        return loss.detach(), norm, aux

    def _improve_traced(
        self, loss_of: Callable[[Forward], tuple[Tensor, Aux]], rate: Tensor, in_train_mode: bool
    ) -> tuple[Tensor, Tensor, Aux]:
        def of_vector(vector: Tensor) -> tuple[Tensor, tuple[Tensor, Aux, dict[str, Tensor]]]:
            # Inside a gradient no tensor from outside may be changed in place.
            fresh = {name: buffer.clone() for name, buffer in self._buffers.items()}
            self._set_mode(in_train_mode)
            loss, aux = loss_of(self.bound(vector, fresh))
            self._set_mode(False)
            return loss, (loss, aux, fresh)

        found = grad_and_value(of_vector, has_aux=True)(self.flat.vector)
        gradient, (_, (loss, aux, fresh)) = found
        norm = self._move_traced(gradient, rate)
        is_good = torch.isfinite(norm)
        for name, buffer in self._buffers.items():
            buffer.copy_(torch.where(is_good, fresh[name], buffer))
        return loss.detach(), norm, aux

    def observe(self, *inputs: Tensor, norm: Tensor) -> None:
        """Let the buffers take in a batch in train mode, unless this norm is not finite."""
        if not self.held.has_buffers:
            return
        with torch.no_grad():
            if torch.compiler.is_compiling():
                fresh = {name: buffer.clone() for name, buffer in self._buffers.items()}
                self._set_mode(True)
                self.bound(self.flat.vector, fresh)(*inputs)
                self._set_mode(False)
                for name, buffer in self._buffers.items():
                    buffer.copy_(torch.where(torch.isfinite(norm), fresh[name], buffer))
                return
            before = self._buffers_before()
            self._set_mode(True)
            try:
                with self.autocast():
                    self.module(*inputs)
            finally:
                self._set_mode(False)
            self._keep_buffers(before, norm)

    def _set_mode(self, mode: bool) -> None:
        for part in self._modal:
            part.training = mode

    def _buffers_before(self) -> dict[str, Tensor]:
        if not self.held.has_buffers:
            return {}
        return {name: buffer.clone() for name, buffer in self.module.named_buffers()}

    def _keep_buffers(self, before: Mapping[str, Tensor], norm: Tensor) -> None:
        """Put the buffers back where the norm is not finite, without waiting for the device."""
        if before:
            with torch.no_grad():
                is_good = torch.isfinite(norm)
                for name, buffer in self.module.named_buffers():
                    buffer.copy_(torch.where(is_good, buffer, before[name]))

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

    def weights(self) -> dict[str, Tensor]:
        """Return all that decides what the network computes, by name: parameters, buffers, the rest."""
        return {**self.flat.by_name(self.flat.vector), **self.held.tensors()}

    def load_weights(self, saved: Mapping[str, Tensor]) -> None:
        """Copy saved weights in."""
        load_named(self.flat, self.flat.vector, self.held, saved)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers and moments by name."""
        return {"weights": self.weights(), "optimizer": self.optimizer.state_dict()}

    def check_weights(self, saved: Mapping[str, Tensor]) -> None:
        """Raise StateError unless these are weights of such a network."""
        check_named(self.flat, self.held, saved)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such a learner."""
        states.check_keys(state, "weights", "optimizer")
        with states.within("optimizer"):
            self.optimizer.check_state(state["optimizer"])
        with states.within("weights"):
            self.check_weights(state["weights"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights, buffers and moments in."""
        self.check_state(state)
        self.load_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])


class Target:
    """A copy of a learner's network that follows it slowly, for values to aim at; in eval mode."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.vector = learner.flat.vector.clone()
        self._module = copy.deepcopy(learner.module).requires_grad_(False)
        views = learner.flat.by_name(self.vector)
        theirs = dict(learner.module.named_parameters())
        for name, parameter in self._module.named_parameters():
            parameter.grad = None
            # What is not trained is the same here and there.
            parameter.data = views[name] if name in views else theirs[name].data
        self.held = Held(self._module, without=set(theirs))
        self._buffers = dict(self._module.named_buffers())

    def __call__(self, *inputs: Tensor) -> Any:
        """Return what the network says with the weights and buffers of the target."""
        if torch.compiler.is_compiling():
            return self._learner.bound(self.vector, self._buffers)(*inputs)
        with self._learner.autocast():
            return self._module(*inputs)

    def follow(self, share: float) -> None:
        """Move this share of the way to the learner's weights; buffers are copied."""
        if share == 1.0:
            self.vector.copy_(self._learner.flat.vector)
        else:
            self.vector.lerp_(self._learner.flat.vector, share)
        self.held.follow(self._learner.held)

    def state_dict(self) -> dict[str, Any]:
        """Return weights and buffers by name."""
        return {**self._learner.flat.by_name(self.vector), **self.held.tensors()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such a target."""
        check_named(self._learner.flat, self.held, state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights and buffers in."""
        load_named(self._learner.flat, self.vector, self.held, state)


def _parts_with_modes(module: nn.Module) -> list[nn.Module]:
    """Put a module in eval mode; return the parts of it for which train mode would be another."""
    # Called on the whole, because a module may have a say in it: a frozen batch norm never trains.
    module.train()
    trained = [part for part in module.modules() if part.training]
    module.eval()
    return [part for part in trained if not part.training and not is_plain_kind(type(part))]
