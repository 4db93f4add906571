"""One optimisation step of a Model: eager with a fused optimizer, or one compiled function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from ludus.core.errors import Diverged
from ludus.nn.flat import FlatParameters
from ludus.nn.model import Model
from ludus.nn.optimizer import Optimizer

Precision = Literal["float32", "bfloat16", "float16"]
MAX_SKIPS = 20
_FIRST_SCALE, _GROW_AFTER = 2.0**16, 2000


class Update:
    """Learns from one batch at a time; a part, with everything that changes as it learns.

    A step whose gradient is not finite is skipped on the device; the loss and the gradient norm that
    it returns show it to whoever writes them, without waiting for the device at every step.
    """

    def __init__(
        self,
        model: Model,
        flat: FlatParameters,
        optimizer: Optimizer,
        *,
        accumulate: int,
        max_grad_norm: float | None,
        precision: Precision,
        ema_decay: float | None,
    ) -> None:
        self.model = model
        self.flat = flat
        self.optimizer = optimizer
        self._accumulate = accumulate
        self._max_grad_norm = max_grad_norm
        self._precision = precision
        self._dtype = getattr(torch, precision)
        self._device = flat.vector.device
        self._ema_decay = ema_decay
        self.ema = flat.vector.clone() if ema_decay is not None else None
        self.num_gathered = 0
        """How many batches wait in the gradient for the next step."""
        # Sums over the epoch of loss times examples, and of right answers.
        exact = torch.float32 if self._device.type == "mps" else torch.float64
        self.totals = torch.zeros(2, dtype=exact, device=self._device)
        self._loss_total, self._correct_total = self.totals[0], self.totals[1]
        self.num_examples = 0
        self.scale = torch.full(
            (), _FIRST_SCALE if precision == "float16" else 1.0, device=self._device
        )
        self.num_good = torch.zeros((), device=self._device)
        self.num_skipped = torch.zeros((), device=self._device)
        """Steps skipped in a row because the half-precision scale was too large."""

    def __call__(
        self, batch: Any, batch_idx: int, *, learning_rate: float, is_last: bool
    ) -> dict[str, Any]:
        """Learn from a batch; `is_last` closes the step even if fewer batches were gathered."""
        result = self._backward(batch, batch_idx)
        self._count(result, count_examples(batch))
        self.num_gathered += 1
        metrics = {"train/loss": result["loss"].detach()}
        if self.num_gathered == self._accumulate or is_last:
            norm = self._step(learning_rate)
            if self._precision != "float16":
                metrics["train/grad_norm"] = norm
            self.num_gathered = 0
        return metrics

    def _backward(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        if self._precision == "float32":
            result = self.model.training_step(batch, batch_idx)
            result["loss"].backward()
            return result
        with torch.autocast(self._device.type, dtype=self._dtype):
            result = self.model.training_step(batch, batch_idx)
        (result["loss"] * self.scale).backward()
        return result

    def _count(self, result: Mapping[str, Tensor], count: int) -> None:
        self.num_examples += count
        self._loss_total.add_(result["loss"].detach(), alpha=count)
        if "correct" in result:
            self._correct_total.add_(result["correct"])

    def _step(self, learning_rate: float) -> Tensor:
        gradient = self.flat.gradient
        if self._precision == "float16":
            gradient.div_(self.scale * self.num_gathered)
        elif self.num_gathered > 1:
            gradient.div_(self.num_gathered)
        norm: Tensor = torch.linalg.vector_norm(gradient)
        found_inf = None
        is_good = True
        if self._precision == "float16":
            found_inf = (~torch.isfinite(norm)).to(torch.float32)
            self._rescale(found_inf)
        elif self._device.type == "cpu":
            # On the CPU reading a number costs nothing, so the step is simply not taken.
            is_good = math.isfinite(norm.item())
        else:
            found_inf = (~torch.isfinite(norm)).to(torch.float32)
        if is_good:
            if self._max_grad_norm is not None:
                gradient.mul_((self._max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
            self.optimizer.step(learning_rate, found_inf=found_inf)
            if self.ema is not None and self._ema_decay is not None:
                self.ema.lerp_(self.flat.vector, 1 - self._ema_decay)
        gradient.zero_()
        return norm

    def _rescale(self, found_inf: Tensor) -> None:
        """Halve the scale after an overflow, double it after many steps without one."""
        is_bad = found_inf > 0
        self.num_skipped.copy_(torch.where(is_bad, self.num_skipped + 1, 0.0))
        self.num_good.copy_(torch.where(is_bad, 0.0, self.num_good + 1))
        grows = self.num_good >= _GROW_AFTER
        self.scale.mul_(torch.where(is_bad, 0.5, torch.where(grows, 2.0, 1.0)))
        self.num_good.mul_((~grows).to(self.num_good.dtype))

    def check(self) -> None:
        """Raise Diverged if half precision has overflowed too often in a row."""
        if self._precision == "float16" and self.num_skipped.item() >= MAX_SKIPS:
            raise Diverged(
                f"{MAX_SKIPS} steps in a row overflowed in float16; use bfloat16 or float32, or lower"
                " the learning rate"
            )

    def close_epoch(self) -> dict[str, float]:
        """Return the mean loss and accuracy over the examples of this epoch, and begin to count anew."""
        loss, correct = (self.totals / max(self.num_examples, 1)).tolist()
        metrics = {"train/epoch_loss": loss}
        if self.model.loss in ("cross_entropy", "binary_cross_entropy"):
            metrics["train/epoch_accuracy"] = correct
        self.totals.zero_()
        self.num_examples = 0
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the weights and the optimizer, which are parts of their own."""
        flat = self.flat
        return {
            "ema": None if self.ema is None else flat.by_name(self.ema),
            "gradient": flat.by_name(flat.gradient) if self.num_gathered else None,
            "num_gathered": self.num_gathered,
            "totals": self.totals,
            "num_examples": self.num_examples,
            "scaler": [self.scale, self.num_good, self.num_skipped],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        if self.ema is not None:
            self.flat.load(self.ema, state["ema"])
        if state["num_gathered"]:
            self.flat.load(self.flat.gradient, state["gradient"])
        else:
            self.flat.gradient.zero_()
        self.num_gathered = state["num_gathered"]
        self.totals.copy_(state["totals"])
        self.num_examples = state["num_examples"]
        for tensor, saved in zip(
            (self.scale, self.num_good, self.num_skipped), state["scaler"], strict=True
        ):
            tensor.copy_(saved)


def count_examples(batch: Any) -> int:
    """Return how many examples a batch holds: the rows of its first tensor."""
    while not isinstance(batch, Tensor):
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return batch.shape[0]
