"""The whole update as one compiled function: loss, gradient, clipping, optimizer and mean weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ludus.nn.model import Model
from ludus.supervised.update import Update, count_examples


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


class CompiledUpdate(Update):
    """Does what Update does, in one call of compiled code that changes the same tensors in place."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._learning_rate = torch.zeros((), device=self._device)
        self._module = StepModule(self.model)
        self._buffers = dict(self._module.named_buffers())
        self._run_compiled = torch.compile(self._learn, dynamic=False, fullgraph=True)

    def __call__(self, batch: Any, batch_idx: int, *, learning_rate: float, is_last: bool) -> dict[str, Any]:
        """Learn from a batch; `is_last` closes the step even if fewer batches were gathered."""
        count = count_examples(batch)
        self.num_examples += count
        self.num_gathered += 1
        closes = self.num_gathered == self._accumulate or is_last
        self._learning_rate.fill_(learning_rate)
        loss, norm = self._run_compiled(
            self.flat.vector,
            self.flat.gradient,
            self.optimizer.moments,
            self.optimizer.num_steps,
            self.ema,
            self.totals,
            (self.scale, self.num_good, self.num_skipped),
            self._buffers,
            self._learning_rate,
            batch,
            count,
            self.num_gathered if closes else 0,
        )
        metrics = {"train/loss": loss}
        if closes:
            self.num_gathered = 0
            if self._precision != "float16":
                metrics["train/grad_norm"] = norm
        return metrics

    def _learn(
        self,
        vector: Tensor,
        gathered: Tensor,
        moments: Sequence[Tensor],
        num_steps: Tensor,
        ema: Tensor | None,
        totals: Tensor,
        scaler: tuple[Tensor, Tensor, Tensor],
        buffers: dict[str, Tensor],
        learning_rate: Tensor,
        batch: Any,
        count: int,
        closes: int,
    ) -> tuple[Tensor, Tensor]:
        """Compute one batch; `closes` is the number of batches in the step, 0 if it goes on."""
        gradient, result, fresh = self._differentiate(vector, buffers, batch, scaler[0])
        for name, value in fresh.items():
            buffers[name].copy_(value)
        totals[0].add_(result["loss"] * count)
        if "correct" in result:
            totals[1].add_(result["correct"])
        if self._accumulate > 1:
            gathered.add_(gradient)
            gradient = gathered
        if not closes:
            return result["loss"], result["loss"]
        gradient = gradient / (scaler[0] * closes) if self._precision == "float16" else gradient / closes
        norm = torch.linalg.vector_norm(gradient)
        is_good = torch.isfinite(norm)
        if self._precision == "float16":
            self._rescale((~is_good).to(torch.float32))
        if self._max_grad_norm is not None:
            gradient = gradient * (self._max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        steps = num_steps + 1
        new_vector, new_moments = self.optimizer.moved(
            vector, gradient, list(moments), steps, learning_rate
        )
        vector.copy_(torch.where(is_good, new_vector, vector))
        num_steps.copy_(torch.where(is_good, steps, num_steps))
        for moment, new in zip(moments, new_moments, strict=True):
            moment.copy_(torch.where(is_good, new, moment))
        if ema is not None and self._ema_decay is not None:
            ema.copy_(torch.where(is_good, torch.lerp(ema, vector, 1 - self._ema_decay), ema))
        if self._accumulate > 1:
            gathered.zero_()
        return result["loss"], norm

    def _differentiate(
        self, vector: Tensor, buffers: dict[str, Tensor], batch: Any, scale: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Return the gradient, what the model returned, and the buffers as it left them."""
        names = [f"module.{name}" for name in self.flat.names]

        def loss_of(vector: Tensor) -> tuple[Tensor, tuple[dict[str, Tensor], dict[str, Tensor]]]:
            weights = dict(zip(names, self.flat.views(vector), strict=True))
            fresh = {name: buffer.clone() for name, buffer in buffers.items()}
            with torch.autocast(
                self._device.type, dtype=self._dtype, enabled=self._precision != "float32"
            ):
                result = functional_call(self._module, {**weights, **fresh}, (batch, 0))
            loss = result["loss"] * scale if self._precision == "float16" else result["loss"]
            return loss, (result, fresh)

        gradient, (_, (result, fresh)) = grad_and_value(loss_of, has_aux=True)(vector)
        return gradient, {name: value.detach() for name, value in result.items()}, fresh
