"""One update of the weights: unscale and clip the gradient, guard, optimizer step, EMA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.nn.ema import Ema
from ludus.nn.flat import FlatParameters, Vectors
from ludus.nn.optimizer import Optimizer
from ludus.nn.scaling import LossScale

# Given a finite gradient, no learning rate below this, even times the weight decay, can make float32
# weights overflow.
STEEP = 1.0


class Prepared(NamedTuple):
    """A step that the optimizer is about to take."""

    norm: Tensor
    """The norm of the gradients."""
    stays: Vectors
    """For each part 1 if it takes no step."""
    grad_divisor: Tensor | None
    """The number that clipping divides the gradients by."""
    released: Sequence[Sequence[Tensor]] | None
    """The gradients of all parameters of each part, if they are not kept in vectors."""
    before: list[tuple[Tensor, Tensor]]
    """The tensors that the step changes, with copies, if it may have to be undone."""


class GradientStep:
    """Updates flat vectors along their gradients, or not at all; never those of a frozen group.

    A gradient whose norm exceeds max_grad_norm is divided by the ratio of the two; any other is unchanged to
    the bit. The norm is taken over everything that is not frozen. If it is not finite, or a weight would not
    be, then weights, moments, EMA and step count stay, as those of a frozen group do. Nothing waits for the
    device.
    """

    def __init__(
        self,
        flat: FlatParameters,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None,
        scaling: LossScale,
        ema: Ema | None,
        highest_rate: float,
    ) -> None:
        self.flat = flat
        self.optimizer = optimizer
        self.scaling = scaling
        self.ema = ema
        self.max_grad_norm = max_grad_norm
        self._steepness = max(part.rate for part in flat.parts) * max(
            1.0, getattr(optimizer.config, "weight_decay", 0.0)
        )
        self.is_steep = (
            optimizer.is_unbounded
            or highest_rate * self._steepness > STEEP
            or any(
                # The largest float16 is near enough for a small step to overflow.
                vector.dtype == torch.float16
                for vector in flat.vectors
            )
        )
        self._is_whole = len(flat.parts) == 1 and not flat.frozen
        self._found_inf = torch.zeros((), device=flat.device)

    def is_safe_at(self, learning_rate: float) -> bool:
        """Return whether a step at this rate keeps weights finite, or is undone if it does not."""
        return self.is_steep or learning_rate * self._steepness <= STEEP

    def prepare(self, gradients: Vectors, grad_scale: Tensor | None) -> Prepared:
        """Unscale the gradients and return the arguments of the optimizer's step along them."""
        scaling = self.scaling
        released = None
        if not self.flat.keeps_gradients:
            released = [part.released_gradients() for part in self.flat.parts]
        if scaling.is_on or grad_scale is not None:
            whole = gradients if released is None else [one for part in released for one in part]
            self._reduce(whole, grad_scale)
        norm = self._norm([[one] for one in gradients] if released is None else released)
        # 0 if the norm is finite, else 1, in two operations.
        found_inf = torch.ne(norm * 0, 0, out=self._found_inf)
        if scaling.is_on:
            scaling.follow(found_inf > 0)
        divisor = None
        if (limit := self.max_grad_norm) is not None:
            divisor = (norm / limit).clamp_min_(1.0)
        moved = [*self.flat.vectors, *self.optimizer.changed()] if self.is_steep else []
        before = [(tensor, tensor.clone()) for tensor in moved]
        return Prepared(norm, self._stays(found_inf), divisor, released, before)

    def finish(self, gradients: Vectors, step: Prepared) -> Tensor:
        """Undo a step after which a weight is not finite, update the EMA and clear the gradients.

        Return the norm of the gradients, not finite if no step was taken.
        """
        norm, stays, _, released, before = step
        if before:
            is_finite = self._is_finite()
            for tensor, old in before:
                tensor.copy_(torch.where(is_finite.to(tensor.device), tensor, old))
            self.optimizer.keep_if(is_finite)
            norm = norm / is_finite
            stays = self._stays(self._found_inf.copy_(~torch.isfinite(norm)))
        if self.ema is not None:
            self.ema.follow(self.flat.vectors, stays)
        if released is not None:
            self.flat.clear_gradients()
            return norm
        for gradient in gradients:
            gradient.zero_()
        return norm

    def take(self, gradients: Vectors, learning_rate: Tensor, grad_scale: Tensor | None) -> Tensor:
        """Take the whole step along these gradients; return their norm, as `finish` does."""
        step = self.prepare(gradients, grad_scale)
        _, stays, divisor, released, _ = step
        if torch.compiler.is_compiling():
            self.optimizer.step_traced(gradients, learning_rate, stays=stays, grad_divisor=divisor)
        else:
            self.optimizer.step(learning_rate, stays=stays, grad_divisor=divisor, released=released)
        return self.finish(gradients, step)

    def _reduce(self, gradients: Vectors, grad_scale: Tensor | None) -> None:
        """Unscale the gradients of float16, and turn a sum over batches into the mean."""
        for gradient in gradients:
            if self.scaling.is_on:
                gradient.div_(self.scaling.scale.to(gradient.device))
            if grad_scale is not None:
                gradient.mul_(grad_scale.to(gradient.device))

    def _norm(self, gradients: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return the norm of all gradients that are not frozen, in float32; each part has one or many
        tensors.
        """
        squares = []
        for part, own in zip(self.flat.parts, gradients, strict=True):
            square = _squared_norm(own)
            if part.is_frozen is not None:
                square = square.masked_fill(part.is_frozen, 0.0)
            squares.append(square)
        whole = squares[0]
        for square in squares[1:]:
            whole = whole + square.to(whole.device)
        return whole.sqrt_()

    def _stays(self, found_inf: Tensor) -> Vectors:
        """Return for each part 1 if it takes no step: the gradient is not finite, or the part is frozen."""
        if self._is_whole:
            return [found_inf]
        stays = []
        for part in self.flat.parts:
            stay = found_inf.to(part.vector.device)
            stays.append(stay if part.is_frozen is None else stay.masked_fill(part.is_frozen, 1.0))
        return stays

    def _is_finite(self) -> Tensor:
        """Return whether all weights are finite."""
        first, *others = [torch.isfinite(vector).all() for vector in self.flat.vectors]
        for is_finite in others:
            first = first & is_finite.to(first.device)
        return first


def _squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of one vector, or of many tensors, in float32."""
    if len(gradients) > 1:
        return torch.stack(torch._foreach_norm(list(gradients), dtype=torch.float32)).square().sum()
    gradient = gradients[0]
    if gradient.dtype != torch.float32:
        gradient = gradient.float()
    if torch.compiler.is_compiling():
        return gradient.square().sum()
    # A third of vector_norm's time on a small vector; above 1e19 the square overflows to infinity.
    return torch.dot(gradient, gradient)
