"""The whole update as one compiled function: loss, gradient, clipping, optimizer and mean weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ludus.nn.engines.compiled import compile_method
from ludus.nn.model import Model
from ludus.supervised.update import STEEP, Update, count_examples


class StepModule(nn.Module):
    """Makes `training_step` a forward pass, so that weights can be handed to it from outside."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.module = model.module
        # In a list, so that torch does not take the Model for a child of this module.
        self._model = [model]

    def forward(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Return what the model's training_step returns."""
        return self._model[0].training_step(batch, batch_idx)


class _State(NamedTuple):
    """Every tensor that the compiled function changes in place."""

    vector: Tensor
    gathered: Tensor
    moments: Sequence[Tensor]
    num_steps: Tensor
    corrections: Tensor
    ema: Tensor | None
    totals: Tensor
    scale: Tensor
    buffers: dict[str, Tensor]


class CompiledUpdate(Update):
    """Does what Update does, in one call of compiled code that changes the same tensors in place."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._module = StepModule(self.model)
        self._numbers = torch.zeros(2, device=self._device)
        """The learning rate, and one over the number of batches in the step."""
        self._state = _State(
            self.flat.vector,
            self.flat.gradient,
            self.optimizer.moments,
            self.optimizer.num_steps,
            torch.zeros(2, device=self._device),
            self.ema,
            self.totals,
            self.scale,
            dict(self._module.named_buffers()),
        )
        self._compiled_gather = compile_method(self._gather, self._device)
        self._compiled_learn = compile_method(self._learn, self._device)
        self._last_numbers = (0.0, 0)

    def __call__(
        self, batch: Any, batch_idx: int, *, learning_rate: float, is_last: bool
    ) -> dict[str, Any]:
        """Learn from a batch; `is_last` closes the step even if fewer batches were gathered."""
        self.num_examples += count_examples(batch)
        self.num_gathered += 1
        if self.num_gathered < self._accumulate and not is_last:
            return {"train/loss": self._compiled_gather(batch)}
        numbers = (learning_rate, self.num_gathered)
        if numbers != self._last_numbers:
            self._numbers.copy_(torch.tensor([learning_rate, 1 / self.num_gathered]))
            self._last_numbers = numbers
        loss, norm = self._compiled_learn(batch, self._numbers)
        self.num_gathered = 0
        if self._precision == "float16":
            return {"train/loss": loss}
        return {"train/loss": loss, "train/grad_norm": norm}

    def _gather(self, batch: Any) -> Tensor:
        """Add the gradient of one batch to those that wait."""
        loss, gradient = self._differentiate(self._state, batch)
        self._state.gathered.add_(gradient)
        return loss

    def _learn(self, batch: Any, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the last batch of a step and take the step."""
        state = self._state
        loss, gradient = self._differentiate(state, batch)
        if self._accumulate > 1:
            gradient = (state.gathered + gradient) * numbers[1]
            state.gathered.zero_()
        if self._precision == "float16":
            gradient = gradient / state.scale
        norm = torch.linalg.vector_norm(gradient)
        is_good = torch.isfinite(norm)
        if self._precision == "float16":
            self._rescale((~is_good).to(torch.float32))
        if self._max_grad_norm is not None:
            gradient = gradient * (self._max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        steps = state.num_steps + 1
        # Stored, not only computed: else the powers would be taken again for every weight.
        state.corrections.copy_(self.optimizer.corrections(steps))
        vector, moments = self.optimizer.moved(
            state.vector, gradient, list(state.moments), state.corrections, numbers[0]
        )
        if self.optimizer.config.learning_rate > STEEP:
            is_good = is_good & torch.isfinite(vector).all()
        state.vector.copy_(torch.where(is_good, vector, state.vector))
        state.num_steps.copy_(torch.where(is_good, steps, state.num_steps))
        for moment, new in zip(state.moments, moments, strict=True):
            moment.copy_(torch.where(is_good, new, moment))
        if state.ema is not None and self._ema_decay is not None:
            mean = torch.lerp(state.ema, state.vector, 1 - self._ema_decay)
            state.ema.copy_(torch.where(is_good, mean, state.ema))
        return loss, norm / is_good

    def _differentiate(self, state: _State, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient; count the batch, and keep the buffers it leaves."""
        names = [f"module.{name}" for name in self.flat.names]

        def loss_of(vector: Tensor) -> tuple[Tensor, tuple[dict[str, Tensor], dict[str, Tensor]]]:
            weights = dict(zip(names, self.flat.views(vector), strict=True))
            fresh = {name: buffer.clone() for name, buffer in state.buffers.items()}
            with torch.autocast(
                self._device.type, dtype=self._dtype, enabled=self._precision != "float32"
            ):
                result = functional_call(self._module, {**weights, **fresh}, (batch, 0))
            loss = result["loss"] * state.scale if self._precision == "float16" else result["loss"]
            return loss, (result, fresh)

        gradient, (_, (result, fresh)) = grad_and_value(loss_of, has_aux=True)(state.vector)
        loss = result["loss"].detach()
        for name, buffer in state.buffers.items():
            buffer.copy_(torch.where(torch.isfinite(loss), fresh[name], buffer))
        state.totals[0].add_(loss * count_examples(batch))
        if "correct" in result:
            state.totals[1].add_(result["correct"])
            state.totals[2].add_(count_examples(batch))
        return loss, gradient
