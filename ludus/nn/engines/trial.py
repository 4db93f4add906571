"""Try a forward and backward pass before training: its time, its loss and its gradients.

It has no side effects: weights, gradients, buffers, plain attributes and generators are as before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ludus.nn.precision import Precision, autocast_in
from ludus.nn.swapped_weights import restored
from ludus.seeds import forked

_NUM_TIMED = 5
_ENOUGH_S = 2.0
# The relative distance of two gradients of the same loss that rounding explains, by precision.
_TOLERANCE = {"float32": 2e-3, "bfloat16": 5e-2, "float16": 2e-2}
_WIDEST = 5e-2
_TIMES_AS_FAR = 2.0

Forward = Callable[..., Any]


@dataclass(frozen=True)
class PassOutcome:
    """A loss and the gradient of each weight."""

    loss: Tensor
    gradients: Sequence[Tensor | None]


class Trial:
    """Forward and backward passes of a network on one batch."""

    def __init__(
        self,
        module: nn.Module,
        inputs: Sequence[object],
        *,
        precision: Precision,
        owners: Sequence[object] = (),
    ) -> None:
        """`module` returns a mapping with a `loss`; `precision` is what it computes in.

        `owners` are the objects whose methods it calls, such as a Model: their attributes are restored too.
        """
        self._module, self._inputs, self._precision = module, inputs, precision
        self._owners = owners
        self.forward: Forward = module.forward
        """The eager forward pass."""
        self._weights = [weight for weight in module.parameters() if weight.requires_grad]
        self._device = self._weights[0].device

    def outcome(self, forward: Forward, *, seed: int = 0, exactly: bool = False) -> PassOutcome:
        """Return the loss and gradients of a pass from this seed; `exactly` means in float32."""
        with self._untouched(seed):
            return self._pass(forward, exactly=exactly)

    def seconds(self, forward: Forward) -> float:
        """Return the time of a pass after a warm-up."""
        taken: list[float] = []
        with self._untouched(0):
            self._pass(forward)
            self._wait()
            while len(taken) < _NUM_TIMED and sum(taken) < _ENOUGH_S:
                start = time.perf_counter()
                self._pass(forward)
                self._wait()
                taken.append(time.perf_counter() - start)
        return min(taken)

    def seconds_if_possible(self, forward: Forward) -> float | None:
        """Return the same, or None if a pass fails: training itself reports why, if it fails there too."""
        try:
            return self.seconds(forward)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            return None

    def _pass(self, forward: Forward, *, exactly: bool = False) -> PassOutcome:
        autocast = autocast_in(self._precision, self._device)
        with contextlib.nullcontext() if exactly else autocast:
            loss = forward(*self._inputs)["loss"]
        return PassOutcome(
            loss.detach(), torch.autograd.grad(loss, self._weights, allow_unused=True)
        )

    @contextlib.contextmanager
    def _untouched(self, seed: int) -> Iterator[None]:
        with forked(seed), restored(self._module, *self._owners):
            yield

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def why_not_alike(self, eager: Forward, other: Forward) -> str | None:
        """Return how another forward pass differs from the eager one by more than rounding, if it does.

        If a network is stochastic (dropout), the difference is compared with that of two eager passes. If
        rounding errors accumulate, as in half precision over many layers, with the distances from float32.
        """
        first, found = self.outcome(eager), self.outcome(other)
        limit = _TOLERANCE.get(self._precision, _WIDEST)
        away = distance(found, first)
        if away <= limit:
            return None
        spread = distance(self.outcome(eager, seed=1), first)
        if away <= _TIMES_AS_FAR * spread:
            return None
        exact = self.outcome(eager, exactly=True)
        if distance(found, exact) <= _TIMES_AS_FAR * distance(first, exact) + limit:
            return None
        return (
            f"its gradient differs from the eager one by {away:.2g} of its length (loss"
            f" {float(found.loss):.6g}, eagerly {float(first.loss):.6g}), which is more than rounding"
        )


def distance(found: PassOutcome, expected: PassOutcome) -> float:
    """Return the relative distance of two outcomes: the larger of those of the loss and of the gradient."""
    square = length = 0.0
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        if one is None or other is None:
            given = one if other is None else other
            square += 0.0 if given is None else float(given.abs().square().sum())
            continue
        square += float((one - other).abs().double().square().sum())
        length += float(other.abs().double().square().sum())
    of_gradient = (square / length) ** 0.5 if length else float(square > 0)
    loss, expected_loss = float(found.loss), float(expected.loss)
    of_loss = abs(loss - expected_loss) / max(abs(expected_loss), 1e-6)
    # NaN or infinity on one side alone is not rounding.
    largest = max(of_gradient, of_loss)
    return largest if largest == largest else float("inf")
