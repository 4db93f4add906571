"""The one gradient step of the library: loss, gradient, clipping, guard, optimizer and EMA."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ludus.core import states
from ludus.nn.buffers import Before, GuardedBuffers, parts_with_modes, set_mode
from ludus.nn.ema import Ema
from ludus.nn.flat import FlatParameters
from ludus.nn.held import Held, check_named, load_named
from ludus.nn.optimizer import Adam, Optimizer, Sgd
from ludus.nn.scaling import LossScale
from ludus.nn.step import GradientStep

Aux = TypeVar("Aux")
Forward = Callable[..., Any]
LossOf = Callable[[Forward], tuple[Tensor, Aux]]
Precision = Literal["float32", "bfloat16", "float16"]


class Learner:
    """Holds one network and moves its weights: the only gradient step of the library.

    A step is `improve`; with accumulation some calls of `gather` come before it, and `share` is one
    over the number of batches. A step whose gradient is not finite, or after which a weight would not
    be, is skipped: weights, moments, EMA and step count stay. Nothing waits for the device.

    The network is in eval mode except while its own loss is computed: then it is in
    train mode, and its buffers change. They take nothing from a batch whose loss is not finite, nor
    from the last batch of a skipped step; a step skipped to find the scale of float16 is no such step.

    The same code serves every engine: eagerly the network's own parameters, views of one vector, are
    used and one fused kernel takes the step; inside a compiled function everything is computed from
    the vector and written back to it.
    """

    def __init__(
        self,
        module: nn.Module,
        config: Adam | Sgd,
        *,
        max_grad_norm: float | None,
        precision: Precision = "float32",
        undecayed: Collection[str] = (),
        ema_decay: float | None = None,
        highest_rate: float | None = None,
        called: nn.Module | None = None,
    ) -> None:
        """Weight decay leaves the parameters named in `undecayed` alone.

        `highest_rate` is the largest learning rate of a schedule that rises. `called` is a module that
        holds the network as its attribute `module` and is called in its place; the mode of the network
        is then its owner's.
        """
        self.module = module
        self._modal = [] if called is not None else parts_with_modes(module)
        self._called = module if called is None else called
        self._prefix = "" if called is None else "module."
        self.flat = FlatParameters(module)
        self.held = Held(module, without=self.flat.names)
        self._guarded = GuardedBuffers(module)
        # The compiled update works on these very tensors; modules that replace theirs are not compiled.
        self._buffers = {self._prefix + name: buffer for name, buffer in module.named_buffers()}
        self.optimizer = Optimizer(config, self.flat, undecayed=undecayed)
        self._device = self.flat.vector.device
        self._dtype = None if precision == "float32" else getattr(torch, precision)
        self.scaling = LossScale(self._device, is_on=precision == "float16")
        self.ema = None if ema_decay is None else Ema(self.flat.vector, ema_decay)
        self._step = GradientStep(
            self.flat,
            self.optimizer,
            max_grad_norm=max_grad_norm,
            scaling=self.scaling,
            ema=self.ema,
            highest_rate=max(config.learning_rate, highest_rate or 0.0),
        )

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
        names = [self._prefix + name for name in self.flat.names]
        weights = dict(zip(names, self.flat.views(vector), strict=True))
        weights |= buffers or {}

        def forward(*inputs: Tensor) -> Any:
            with self.autocast():
                return functional_call(self._called, weights, inputs)

        return forward

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the network computes: that of its precision."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def improve(
        self,
        loss_of: LossOf[Aux],
        learning_rate: Tensor,
        *,
        share: Tensor | None = None,
        in_train_mode: bool = True,
    ) -> tuple[Tensor, Tensor, Aux]:
        """Take one step down the loss; return it, the gradient's norm, and what else loss_of gave.

        `loss_of` is given the network as a function. The norm is not finite where no step was taken.
        The learning rate and the share are tensors: a number would be built into what is compiled or
        taped.
        """
        if torch.compiler.is_compiling():
            loss, aux, gradient, fresh = self._differentiated(loss_of, in_train_mode)
            norm = self._step.take_traced(gradient, learning_rate, share)
            self._keep_fresh(fresh, self._sign_of(loss, norm))
            return loss, norm, aux
        loss, aux, before = self._backward(loss_of, in_train_mode)
        norm = self._step.take(learning_rate, share)
        if before:
            self._guarded.restore_unless(self._sign_of(loss, norm), before)
        return loss, norm, aux

    def gather(self, loss_of: LossOf[Aux], *, in_train_mode: bool = True) -> tuple[Tensor, Aux]:
        """Add the gradient of one batch to those that wait for `improve`; return its loss and the rest."""
        if torch.compiler.is_compiling():
            loss, aux, gradient, fresh = self._differentiated(loss_of, in_train_mode)
            self.flat.gradient.add_(gradient)
            self._keep_fresh(fresh, loss)
            return loss, aux
        loss, aux, before = self._backward(loss_of, in_train_mode)
        if before:
            self._guarded.restore_unless(loss, before)
        return loss, aux

    def _sign_of(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Return a number that is finite where the buffers may keep what the batch gave them."""
        return loss if self.scaling.is_on else loss + norm

    def _backward(self, loss_of: LossOf[Aux], in_train_mode: bool) -> tuple[Tensor, Aux, Before]:
        before = self._guarded.before()
        set_mode(self._modal, in_train_mode)
        try:
            with self.autocast():
                loss, aux = loss_of(self._called)
        finally:
            set_mode(self._modal, False)
        self.scaling.scaled(loss).backward()
        return loss.detach(), aux, before

    def _differentiated(
        self, loss_of: LossOf[Aux], in_train_mode: bool
    ) -> tuple[Tensor, Aux, Tensor, dict[str, Tensor]]:
        """Return the loss, the rest, the gradient, and the buffers as the batch leaves them."""

        def of_vector(vector: Tensor) -> tuple[Tensor, tuple[Tensor, Aux, dict[str, Tensor]]]:
            # Inside a gradient no tensor from outside may be changed in place.
            fresh = {name: buffer.clone() for name, buffer in self._buffers.items()}
            set_mode(self._modal, in_train_mode)
            loss, aux = loss_of(self.bound(vector, fresh))
            set_mode(self._modal, False)
            return self.scaling.scaled(loss), (loss, aux, fresh)

        gradient, (_, (loss, aux, fresh)) = grad_and_value(of_vector, has_aux=True)(
            self.flat.vector
        )
        return loss.detach(), aux, gradient, fresh

    def _keep_fresh(self, fresh: Mapping[str, Tensor], sign: Tensor) -> None:
        is_good = torch.isfinite(sign)
        for name, buffer in self._buffers.items():
            buffer.copy_(torch.where(is_good, fresh[name], buffer))

    def observe(self, *inputs: Tensor, norm: Tensor) -> None:
        """Let the buffers take in a batch in train mode, unless this norm is not finite."""
        if not self.held.has_buffers:
            return
        with torch.no_grad():
            if torch.compiler.is_compiling():
                fresh = {name: buffer.clone() for name, buffer in self._buffers.items()}
                set_mode(self._modal, True)
                self.bound(self.flat.vector, fresh)(*inputs)
                set_mode(self._modal, False)
                self._keep_fresh(fresh, norm)
                return
            before = self._guarded.before()
            set_mode(self._modal, True)
            try:
                with self.autocast():
                    self.module(*inputs)
            finally:
                set_mode(self._modal, False)
            self._guarded.restore_unless(norm, before)

    def weights(self) -> dict[str, Tensor]:
        """Return all that decides what the network computes, by name: parameters, buffers, the rest."""
        return {**self.flat.by_name(self.flat.vector), **self.held.tensors()}

    def load_weights(self, saved: Mapping[str, Tensor]) -> None:
        """Copy saved weights in."""
        load_named(self.flat, self.flat.vector, self.held, saved)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers and moments by name, the EMA and the scale of float16 if there are."""
        state = {"weights": self.weights(), "optimizer": self.optimizer.state_dict()}
        return state | {
            name: value for name, value in self.step_state().items() if name in self._more
        }

    def step_state(self) -> dict[str, Any]:
        """Return what a step keeps beside weights and moments: the EMA and the scale of float16."""
        ema = None if self.ema is None else self.flat.by_name(self.ema.vector)
        return {"ema": ema, "scaler": self.scaling.state()}

    def check_step_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this has an EMA where this learner has one, and a scale."""
        if self.ema is not None:
            with states.within("ema"):
                self.flat.check(state["ema"])
        elif state["ema"] is not None:
            raise states.StateError("ema", "is there, where this run has none")
        scaler = states.rows(state, "scaler", length=3)
        with states.within("scaler"):
            self.scaling.check_state(scaler)

    def load_step_state(self, state: Mapping[str, Any]) -> None:
        """Copy a saved EMA and scale in."""
        self.check_step_state(state)
        if self.ema is not None:
            self.flat.load(self.ema.vector, state["ema"])
        self.scaling.load(state["scaler"])

    def check_weights(self, saved: Mapping[str, Tensor]) -> None:
        """Raise StateError unless these are weights of such a network."""
        check_named(self.flat, self.held, saved)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such a learner."""
        states.check_keys(state, "weights", "optimizer", *self._more)
        self.check_step_state({**self.step_state(), **state})
        with states.within("optimizer"):
            self.optimizer.check_state(state["optimizer"])
        with states.within("weights"):
            self.check_weights(state["weights"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights, buffers and moments in."""
        self.check_state(state)
        self.load_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.load_step_state({**self.step_state(), **state})

    @property
    def _more(self) -> list[str]:
        """What is saved beside weights and moments."""
        there = {"ema": self.ema is not None, "scaler": self.scaling.is_on}
        return [name for name, is_there in there.items() if is_there]
