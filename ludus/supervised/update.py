"""One optimisation step of a Model: loss, gradient, clipping, optimizer and mean weights, eagerly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import Diverged, LudusError
from ludus.nn.flat import FlatParameters
from ludus.nn.model import Model
from ludus.nn.optimizer import Optimizer

Precision = Literal["float32", "bfloat16", "float16"]
MAX_SKIPS = 20
_FIRST_SCALE, _GROW_AFTER = 2.0**16, 2000
# From finite gradients a smaller learning rate cannot take the weights out of float32.
STEEP = 1.0


class Update:
    """Learns from one batch at a time; a part, with everything that changes as it learns.

    A step whose gradient or weights would not be finite is skipped on the device; the loss and the
    gradient norm that it returns show it to whoever writes them, without waiting for the device at
    every step. Buffers (the means of batch norm) take nothing from a batch whose loss is not finite.
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
        self._buffers = list(model.module.buffers())
        self._last_buffers = [buffer.clone() for buffer in self._buffers]
        self._has_looked = False
        self.ema = flat.vector.clone() if ema_decay is not None else None
        self.num_gathered = 0
        """How many batches wait in the gradient for the next step."""
        self.totals = torch.zeros(3, dtype=exact_type(self._device), device=self._device)
        """Sums over the epoch: loss times examples, right answers, examples that had an answer."""
        self._loss_total, self._correct_total, self._answered_total = self.totals
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
        if self._buffers:
            torch._foreach_copy_(self._last_buffers, self._buffers)
        result = self._backward(batch, batch_idx)
        if self._buffers:
            if not self._has_looked:
                self._forget_still_buffers()
            self._keep_finite_buffers(result["loss"].detach())
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

    def _forget_still_buffers(self) -> None:
        """Watch only the buffers that the first batch changed: a large table may be among the others."""
        pairs = zip(self._buffers, self._last_buffers, strict=True)
        moving = [(now, last) for now, last in pairs if not torch.equal(now, last)]
        self._buffers = [now for now, _ in moving]
        self._last_buffers = [last for _, last in moving]
        self._has_looked = True

    def _keep_finite_buffers(self, loss: Tensor) -> None:
        if not self._buffers:
            return
        if self._device.type == "cpu":
            if not math.isfinite(loss.item()):
                torch._foreach_copy_(self._buffers, self._last_buffers)
            return
        is_good = torch.isfinite(loss)
        pairs = zip(self._buffers, self._last_buffers, strict=True)
        torch._foreach_copy_(self._buffers, [torch.where(is_good, new, old) for new, old in pairs])

    def _count(self, result: Mapping[str, Tensor], count: int) -> None:
        self.num_examples += count
        self._loss_total.add_(result["loss"].detach(), alpha=count)
        if "correct" in result:
            self._correct_total.add_(result["correct"])
            self._answered_total.add_(count)

    def _step(self, learning_rate: float) -> Tensor:
        gradient = self.flat.gradient
        if self._precision == "float16":
            gradient.div_(self.scale * self.num_gathered)
        elif self.num_gathered > 1:
            gradient.div_(self.num_gathered)
        norm: Tensor = torch.linalg.vector_norm(gradient)
        if self._device.type == "cpu":
            # On the CPU reading a number costs nothing, so a bad step is simply not taken.
            is_bad = not math.isfinite(norm.item())
            if self._precision == "float16":
                self._rescale(torch.tensor(float(is_bad)))
            if not is_bad:
                norm = self._move(learning_rate, norm, None)
        else:
            found_inf = (~torch.isfinite(norm)).to(torch.float32)
            if self._precision == "float16":
                self._rescale(found_inf)
            norm = self._move(learning_rate, norm, found_inf)
        gradient.zero_()
        return norm

    def _move(self, learning_rate: float, norm: Tensor, found_inf: Tensor | None) -> Tensor:
        """Take the step unless found_inf holds 1; return the norm, inf if the weights would overflow."""
        vector = self.flat.vector
        if self._max_grad_norm is not None:
            self.flat.gradient.mul_((self._max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        before = vector.clone() if learning_rate > STEEP else None
        self.optimizer.step(learning_rate, found_inf=found_inf)
        if before is not None:
            is_finite = torch.isfinite(vector).all()
            vector.copy_(torch.where(is_finite, vector, before))
            norm = norm / is_finite
        if self.ema is not None and self._ema_decay is not None:
            weight = 1 - self._ema_decay
            self.ema.lerp_(vector, weight if found_inf is None else weight * (1 - found_inf))
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
        loss, correct, answered = self.totals.tolist()
        metrics: dict[str, float] = {}
        if self.num_examples:
            metrics["train/epoch_loss"] = loss / self.num_examples
        if answered:
            metrics["train/epoch_accuracy"] = correct / answered
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
        names = ("ema", "gradient", "num_gathered", "totals", "num_examples", "scaler")
        states.check_keys(state, *names)
        num_gathered = states.whole(state, "num_gathered", at_most=self._accumulate - 1)
        for name, is_there in [("ema", self.ema is not None), ("gradient", num_gathered > 0)]:
            if is_there:
                with states.within(name):
                    self.flat.check(state[name], finite=name == "ema")
            elif state[name] is not None:
                raise states.StateError(name, "is there, where this run has none")
        num_examples = states.whole(state, "num_examples")
        totals = states.like(state, "totals", self.totals)
        scaler = states.rows(state, "scaler", length=3)
        with states.within("scaler"):
            for index, own in enumerate((self.scale, self.num_good, self.num_skipped)):
                states.between(index, states.like(scaler, index, own, finite=True), low=0)
        if self.ema is not None:
            self.flat.load(self.ema, state["ema"])
        self.flat.gradient.zero_()
        if num_gathered:
            self.flat.load(self.flat.gradient, state["gradient"], finite=False)
        self.num_gathered, self.num_examples = num_gathered, num_examples
        self.totals.copy_(totals)
        for own, saved in zip((self.scale, self.num_good, self.num_skipped), scaler, strict=True):
            own.copy_(saved)


def count_examples(batch: Any) -> int:
    """Return how many examples a batch holds: the rows of its first tensor."""
    tensor = _first_tensor(batch)
    if tensor is None or tensor.ndim == 0:
        raise LudusError(
            f"a batch is a {type(batch).__name__} without a tensor whose rows are examples; let the"
            " loader's collate_fn make one"
        )
    return tensor.shape[0]


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, Mapping | list | tuple):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            tensor = _first_tensor(value)
            if tensor is not None:
                return tensor
    return None


def exact_type(device: torch.device) -> torch.dtype:
    """Return the most exact type that sums can have on this device."""
    return torch.float32 if device.type == "mps" else torch.float64
