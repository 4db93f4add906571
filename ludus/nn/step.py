"""How weights move along a gradient: unscaled, clipped, guarded, by the optimizer, and their EMA."""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.nn.ema import Ema
from ludus.nn.flat import FlatParameters
from ludus.nn.optimizer import Optimizer
from ludus.nn.scaling import LossScale

# From a finite gradient neither a smaller learning rate nor a smaller weight decay times it can take
# the weights out of float32.
STEEP = 1.0


class GradientStep:
    """Moves a flat vector along its gradient, or not at all.

    A gradient longer than max_grad_norm is divided by how many times too long it is; another is left
    alone to the bit. Where the gradient is not finite, or a weight would not be, weights, moments, EMA
    and step count stay as they are. Nothing waits for the device.
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
        self._max_grad_norm = max_grad_norm
        self._is_steep = highest_rate * max(1.0, optimizer.config.weight_decay) > STEEP
        self._corrections = torch.zeros(2, device=flat.vector.device)
        self._found_inf = torch.zeros((), device=flat.vector.device)

    def take(self, learning_rate: Tensor, share: Tensor | None) -> Tensor:
        """Step along the gradient that was gathered; return its norm, not finite if nothing moved."""
        gradient, vector, scaling = self.flat.gradient, self.flat.vector, self.scaling
        if scaling.is_on:
            gradient.div_(scaling.scale)
        if share is not None:
            gradient.mul_(share)
        # A third of vector_norm's time on a vector this small; beyond 1e19 it counts as infinite.
        norm: Tensor = torch.dot(gradient, gradient).sqrt_()
        # 0 where the norm is finite, 1 where it is not, in two operations.
        found_inf = torch.ne(norm * 0, 0, out=self._found_inf)
        if scaling.is_on:
            scaling.follow(found_inf > 0)
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
            found_inf.copy_(~torch.isfinite(norm))
        if self.ema is not None:
            self.ema.follow(vector, found_inf)
        gradient.zero_()
        return norm

    def take_traced(self, gradient: Tensor, learning_rate: Tensor, share: Tensor | None) -> Tensor:
        """Do the same along this gradient and those gathered, as arithmetic a compiler can fuse."""
        optimizer, own = self.optimizer, self.flat.vector
        if share is not None:
            gradient = (self.flat.gradient + gradient) * share
            self.flat.gradient.zero_()
        if self.scaling.is_on:
            gradient = gradient / self.scaling.scale
        norm = torch.linalg.vector_norm(gradient)
        is_good = torch.isfinite(norm)
        if self.scaling.is_on:
            self.scaling.follow(~is_good)
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
        if self.ema is not None:
            self.ema.follow_traced(own, is_good)
        told: Tensor = norm / is_good
        return told
