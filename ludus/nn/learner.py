"""The one gradient step of the library: loss, gradient, clipping, guard, optimizer and EMA."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import grad_and_value

from ludus.core import states
from ludus.nn.buffers import Before, CallWith, GuardedBuffers, parts_with_modes, set_mode
from ludus.nn.ema import TOTAL, Ema, without_total
from ludus.nn.flat import FlatParameters, Vectors
from ludus.nn.groups import Group
from ludus.nn.module_state import ModuleState, check_named, load_named
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.precision import Precision, autocast_in
from ludus.nn.scaling import LossScale
from ludus.nn.step import GradientStep
from ludus.nn.torch_optimizer import Make, make_optimizer

Aux = TypeVar("Aux")
Forward = Callable[..., Any]
LossFn = Callable[[Forward], tuple[Tensor, Aux]]
_PLAIN = contextlib.nullcontext()


class Learner:
    """Holds one network and updates its weights.

    `step` takes one optimizer step; to accumulate gradients, call `accumulate` some times before it and pass
    as `grad_scale` one over the number of batches. A step whose gradient is not finite, or after which a
    weight would not be, is skipped: weights, moments, EMA and step count stay. Nothing waits for the device.

    The network is in eval mode except while its own loss is computed: then it is in train mode, and its
    buffers are updated. They are rolled back after a batch whose loss is not finite and after the last batch
    of a skipped step, but not after a step skipped to find the loss scale of float16.

    The same code serves every engine: eagerly one fused kernel updates each vector; inside a compiled
    function everything is computed from the vectors and written back to them.
    """

    def __init__(
        self,
        module: nn.Module,
        config: OptimizerConfig,
        *,
        max_grad_norm: float | None,
        precision: Precision = "float32",
        undecayed: Collection[str] = (),
        ema_decay: float | None = None,
        highest_rate: float | None = None,
        called: nn.Module | None = None,
        groups: Sequence[Group] = (),
        keeps_gradients: bool = True,
        given: Make | None = None,
    ) -> None:
        """Weight decay skips the parameters named in `undecayed`; `given` makes a script's optimizer.

        `groups` have their own rates and can be frozen; parameters in none form the group `the rest`.

        `highest_rate` is the largest learning rate of a schedule that rises. `called` is a module that holds
        the network as its attribute `module` and is called in its place; its owner then sets the mode of the
        network.
        """
        self.module, self.precision = module, precision
        self._modal = [] if called is not None else parts_with_modes(module)
        self.forward: Forward = module if called is None else called.forward
        self._call_with = CallWith(module if called is None else called)
        self._prefix = "" if called is None else "module."
        self.flat = FlatParameters(module, groups, keeps_gradients=keeps_gradients)
        self.module_state = ModuleState(module, without=self.flat.names)
        self._guarded = GuardedBuffers(module)
        # The compiled update works on these very tensors, so a replaced buffer is copied into them.
        self._buffers = {self._prefix + name: buffer for name, buffer in module.named_buffers()}
        self.optimizer = make_optimizer(config, module, self.flat, undecayed=undecayed, given=given)
        self.scaling = LossScale(self.flat.device, is_on=precision == "float16")
        # In bfloat16 an average over many steps would stall: each increment is below the last digit.
        mean_in = torch.float32 if precision == "bfloat16_pure" else None
        self.ema = None if ema_decay is None else Ema(self.flat, ema_decay, dtype=mean_in)
        self.gradient_step = GradientStep(
            self.flat,
            self.optimizer,
            max_grad_norm=max_grad_norm,
            scaling=self.scaling,
            ema=self.ema,
            highest_rate=max(config.learning_rate, highest_rate or 0.0),
        )

    def __call__(self, *inputs: Tensor) -> Any:
        """Return the network's output in eval mode, differentiable where gradients are enabled."""
        if torch.compiler.is_compiling():
            return self.bound(self.flat.vectors)(*inputs)
        with self.autocast():
            return self.module(*inputs)

    def frozen(self, *inputs: Tensor) -> Any:
        """Return the network's output in eval mode; gradients flow to its inputs, not to its weights."""
        return self.bound([vector.detach() for vector in self.flat.vectors])(*inputs)

    def bound(self, vectors: Vectors, buffers: dict[str, Tensor] | None = None) -> Forward:
        """Return the network as a function of its inputs; updated buffers are left in `buffers`."""
        weights = {self._prefix + name: one for name, one in self.flat.by_name(vectors).items()}

        def forward(*inputs: Tensor) -> Any:
            with self.autocast():
                return self._call_with(weights, buffers or {}, inputs)

        return forward

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the autocast context of the network's precision."""
        if self.precision == "float32":
            return _PLAIN
        return autocast_in(self.precision, self.flat.device)

    def step(
        self,
        loss_fn: LossFn[Aux],
        learning_rate: Tensor,
        *,
        grad_scale: Tensor | None = None,
        in_train_mode: bool = True,
    ) -> tuple[Tensor, Tensor, Aux]:
        """Take one optimizer step on the loss; return the loss, the gradient norm and the aux of loss_fn.

        `loss_fn` is called with the network as a function. The norm is not finite if no step was taken. The
        learning rate and `grad_scale` are tensors: Python numbers would be baked into a taped update.
        """
        if torch.compiler.is_compiling():
            loss, aux, gradients, fresh = self._differentiated(loss_fn, in_train_mode)
            if grad_scale is not None:
                gradients = self._accumulate(gradients)
            norm = self.gradient_step.take(gradients, learning_rate, grad_scale)
            self._keep_fresh(fresh, self._sign_of(loss, norm))
            return loss, norm, aux
        loss, aux, before = self._backward(loss_fn, in_train_mode)
        gradients = self.flat.gradients
        ready = self.gradient_step.prepare(gradients, grad_scale)
        _, stays, divisor, released, _ = ready
        self.optimizer.step(learning_rate, stays=stays, grad_divisor=divisor, released=released)
        norm = self.gradient_step.finish(gradients, ready)
        if before:
            self._guarded.restore_unless(self._sign_of(loss, norm), before)
        return loss, norm, aux

    def accumulate(self, loss_fn: LossFn[Aux], *, in_train_mode: bool = True) -> tuple[Tensor, Aux]:
        """Add the gradient of one batch to those accumulated for `step`; return its loss and aux."""
        if torch.compiler.is_compiling():
            loss, aux, gradients, fresh = self._differentiated(loss_fn, in_train_mode)
            self._accumulate(gradients)
            self._keep_fresh(fresh, loss)
            return loss, aux
        loss, aux, before = self._backward(loss_fn, in_train_mode)
        if before:
            self._guarded.restore_unless(loss, before)
        return loss, aux

    def _accumulate(self, gradients: Vectors) -> Vectors:
        for waiting, gradient in zip(self.flat.gradients, gradients, strict=True):
            waiting.add_(gradient)
        return self.flat.gradients

    def _sign_of(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Return a number that is finite if buffer updates are kept, as they are after a float16 overflow."""
        return loss if self.scaling.is_on else loss + norm

    def _backward(self, loss_fn: LossFn[Aux], in_train_mode: bool) -> tuple[Tensor, Aux, Before]:
        before = self._guarded.before()
        set_mode(self._modal, in_train_mode)
        try:
            with self.autocast():
                loss, aux = loss_fn(self.forward)
        finally:
            set_mode(self._modal, False)
        self.scaling.backward(loss)
        return loss.detach(), aux, before

    def _differentiated(
        self, loss_fn: LossFn[Aux], in_train_mode: bool
    ) -> tuple[Tensor, Aux, Vectors, dict[str, Tensor]]:
        """Return the loss, the aux, the gradients, and the updated buffers."""

        def of_vectors(vectors: Vectors) -> tuple[Tensor, tuple[Tensor, Aux, dict[str, Tensor]]]:
            # Inside grad_and_value no outer tensor may be changed in place.
            fresh = {name: buffer.clone() for name, buffer in self._buffers.items()}
            set_mode(self._modal, in_train_mode)
            loss, aux = loss_fn(self.bound(vectors, fresh))
            set_mode(self._modal, False)
            return self.scaling.scaled(loss), (loss, aux, fresh)

        differentiate = grad_and_value(of_vectors, has_aux=True)
        gradients, (_, (loss, aux, fresh)) = differentiate(self.flat.vectors)
        return loss.detach(), aux, gradients, fresh

    def _keep_fresh(self, fresh: Mapping[str, Tensor], sign: Tensor) -> None:
        is_good = torch.isfinite(sign)
        for name, buffer in self._buffers.items():
            buffer.copy_(torch.where(is_good, fresh[name], buffer))

    def update_statistics(self, *inputs: Tensor, norm: Tensor) -> None:
        """Update the buffers with a batch in train mode, unless this norm is not finite."""
        if not self.module_state.has_buffers:
            return
        with torch.no_grad():
            if torch.compiler.is_compiling():
                fresh = {name: buffer.clone() for name, buffer in self._buffers.items()}
                set_mode(self._modal, True)
                self.bound(self.flat.vectors, fresh)(*inputs)
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

    def set_frozen(self, name: str, is_frozen: bool) -> None:
        """Freeze a group between two steps, or unfreeze it.

        A frozen group takes no step and no weight decay; its moments and its EMA stay. Its gradient does not
        count in the norm. Engines need not tape or compile again.
        """
        self.flat.set_frozen(name, is_frozen)

    def weights(self) -> dict[str, Tensor]:
        """Return everything that decides the network's output, by name: parameters, buffers, extra state."""
        return {**self.flat.by_name(self.flat.vectors), **self.module_state.tensors()}

    def load_weights(self, saved: Mapping[str, Tensor]) -> None:
        """Copy saved weights in."""
        load_named(self.flat, self.flat.vectors, self.module_state, saved)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers and moments by name, and the EMA and the float16 loss scale if any."""
        state = {"weights": self.weights(), "optimizer": self.optimizer.state_dict()}
        more = self.step_state()
        return state | {name: more[name] for name in [*self._more, TOTAL] if name in more}

    def step_state(self) -> dict[str, Any]:
        """Return the state of a step other than weights and moments: the EMA and the float16 loss scale."""
        self.flat.check_trained(self.module)
        ema = {"ema": None} if self.ema is None else self.ema.state()
        state = {**ema, "scaler": self.scaling.state()}
        return state | ({"frozen": dict(self.flat.frozen)} if self.flat.frozen else {})

    def check_step_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this has an EMA exactly if this learner has one, and a loss scale."""
        if self.ema is not None:
            self.ema.check(state)
        elif state["ema"] is not None:
            raise states.StateError("ema", "is there, where this run has none")
        scaler = states.rows(state, "scaler", length=3)
        with states.within("scaler"):
            self.scaling.check_state(scaler)
        if self.flat.frozen:
            with states.within("frozen"):
                self.flat.check_frozen(state["frozen"])

    def load_step_state(self, state: Mapping[str, Any]) -> None:
        """Copy a saved EMA and loss scale in."""
        self.check_step_state(state)
        if self.ema is not None:
            self.ema.load(state)
        self.scaling.load(state["scaler"])
        for name in self.flat.frozen:
            self.flat.set_frozen(name, state["frozen"][name])

    def check_weights(self, saved: Mapping[str, Tensor]) -> None:
        """Raise StateError unless these are weights of such a network."""
        check_named(self.flat, self.module_state, saved)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such a learner."""
        names, optional = ("weights", "optimizer", *self._more), [TOTAL] if self.ema else []
        states.check_keys(state, *names, optional=optional)
        self.check_step_state({**without_total(self.step_state()), **state})
        with states.within("optimizer"):
            self.optimizer.check_state(state["optimizer"])
        with states.within("weights"):
            self.check_weights(state["weights"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights, buffers and moments in."""
        self.check_state(state)
        self.load_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.load_step_state({**without_total(self.step_state()), **state})

    @property
    def _more(self) -> list[str]:
        more = {"ema": self.ema, "scaler": self.scaling.is_on, "frozen": self.flat.frozen}
        return [name for name, there in more.items() if there]
