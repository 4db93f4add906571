"""Loss scaling for float16: keeps small gradients from underflowing; steps that overflow are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import Diverged, LudusError

MAX_SKIPS = 20
_FIRST_SCALE, _GROW_AFTER = 2.0**16, 2000


class LossScale:
    """The loss scale: halved after an overflow, doubled after many steps without one.

    It never waits for the device. If it is off, the scale stays 1.
    """

    def __init__(self, device: torch.device, *, is_on: bool) -> None:
        self.is_on = is_on
        self.scale = torch.full((), _FIRST_SCALE if is_on else 1.0, device=device)
        self.num_good = torch.zeros((), device=device)
        self.num_skipped = torch.zeros((), device=device)
        """Steps skipped in a row because the scale was too large."""

    def backward(self, loss: Tensor) -> None:
        """Backpropagate the scaled loss; raise LudusError if it has no gradient."""
        if not loss.requires_grad:
            raise LudusError(
                "the loss has no gradient: it depends on no parameter that learns, or was computed under"
                " no_grad, from detached values or classes (argmax); compute it from the network's outputs"
            )
        self.scaled(loss).backward()

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the scaled loss, which the gradient is computed from."""
        return loss * self.scale if self.is_on else loss

    def follow(self, is_bad: Tensor) -> None:
        """Update the scale after a step, by whether its gradient overflowed."""
        self.num_skipped.copy_(torch.where(is_bad, self.num_skipped + 1, 0.0))
        self.num_good.copy_(torch.where(is_bad, 0.0, self.num_good + 1))
        grows = self.num_good >= _GROW_AFTER
        self.scale.mul_(torch.where(is_bad, 0.5, torch.where(grows, 2.0, 1.0)))
        self.num_good.mul_((~grows).to(self.num_good.dtype))

    def check(self) -> None:
        """Raise Diverged if float16 has overflowed too many times in a row."""
        if self.is_on and self.num_skipped.item() >= MAX_SKIPS:
            raise Diverged(
                f"{MAX_SKIPS} steps in a row overflowed in float16; use bfloat16 or float32, or lower"
                " the learning rate"
            )

    def state(self) -> list[Tensor]:
        """Return the scale, the number of good steps since it changed, and of steps skipped in a row."""
        return [self.scale, self.num_good, self.num_skipped]

    def check_state(self, saved: Sequence[Any]) -> None:
        """Raise StateError unless these are valid values of that state."""
        for index, own in enumerate(self.state()):
            states.between(index, states.like(saved, index, own, finite=True), low=0)

    def load(self, saved: Sequence[Tensor]) -> None:
        """Copy saved numbers in."""
        for own, value in zip(self.state(), saved, strict=True):
            own.copy_(value)
