"""The optimizer `muon`: updates of weight matrices are orthogonalised; AdamW updates the other parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.config.base import Fraction, PositiveFloat
from ludus.config.registry import register
from ludus.core.errors import LudusError, nearest
from ludus.nn.flat import FlatParameters, FlatPart, Vectors
from ludus.nn.groups import is_inside
from ludus.nn.optimizers._rule import Decay, OptimizerConfig, Rate, Rule

# The coefficients of Keller Jordan's quintic iteration, as in torch.optim.Muon.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_EPS = 1e-7


class Muon(OptimizerConfig):
    """Momentum orthogonalised by Newton-Schulz, for matrices; AdamW for the rest."""

    kind: Literal["muon"]
    """Muon: orthogonalise the momentum of every parameter with two dimensions."""
    momentum: Fraction
    """The decay rate of the running mean of a matrix's gradient."""
    nesterov: bool
    """Use Nesterov momentum: look ahead along the momentum before the step."""
    newton_schulz_steps: Annotated[int, Field(ge=1, le=99)]
    """The number of Newton-Schulz iterations that orthogonalise an update; 5 is usual."""
    adjust: Literal["original", "match_rms_adamw"]
    """The factor of the update of a matrix of A rows and B columns: sqrt(max(1, A / B)), or
    0.2 * sqrt(max(A, B)), which suits learning rates tuned for adamw.
    """
    adamw_parameters: list[str]
    """Matrices that AdamW updates as well, by name, or all in a module of that name: embeddings, the head."""
    adamw_rate: PositiveFloat
    """The factor of the learning rate for parameters that AdamW updates."""
    beta1: Fraction
    """For AdamW: the decay rate of the first moment."""
    beta2: Fraction
    """For AdamW: the decay rate of the second moment."""
    eps: PositiveFloat
    """For AdamW: added to the denominator."""
    weight_decay: Decay
    """The weight decay coefficient of all parameters: decoupled, as with adamw."""


@register("optimizer", "muon")
class MuonRule(Rule):
    """Keeps the first moment of all parameters, and the second moment of those that AdamW updates."""

    Config = Muon
    squares = (1,)
    config: Muon

    def count_moments(self) -> int:
        """Return two."""
        return 2

    def __init__(
        self, config: Muon, part: FlatPart, undecayed: frozenset[str], home: torch.device
    ) -> None:
        super().__init__(config, part, undecayed, home)
        self._part, self._sizes = part, part.sizes
        self._matrices = [
            shape
            if len(shape) == 2
            and not any(is_inside(name, inside=one) for one in config.adamw_parameters)
            else None
            for name, shape in zip(part.names, part.shapes, strict=True)
        ]
        """The shape of each parameter that is orthogonalised; None for the others."""
        self._shares = torch.cat(
            [
                part.vector.new_full(
                    (size,), 1 - (config.beta1 if shape is None else config.momentum)
                )
                for size, shape in zip(part.sizes, self._matrices, strict=True)
            ]
        )
        """One minus the decay rate of the first moment, for each weight."""

    @classmethod
    def check(cls, config: OptimizerConfig, flat: FlatParameters) -> None:
        """Raise LudusError if adamw_parameters names parameters that do not exist."""
        assert isinstance(config, Muon)
        shapes = [shape for part in flat.parts for shape in part.shapes]
        for given in config.adamw_parameters:
            is_there = any(is_inside(name, inside=given) for name in flat.names)
            if not is_there and any(len(shape) == 2 for shape in shapes):
                raise LudusError(
                    f"'optimizer.adamw_parameters' names '{given}', which no trained parameter of the model"
                    f" begins with.{nearest(given, flat.names)}"
                )

    def corrections(self, num_steps: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Return the bias correction of each moment of AdamW."""
        return torch.stack([1 - beta**num_steps for beta in (self.config.beta1, self.config.beta2)])

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and moments after one step."""
        config, kept = self.config, []
        first = torch.lerp(moments[0], gradient, self._shares)
        second = config.beta2 * moments[1] + (1 - config.beta2) * gradient * gradient
        denominator = second.sqrt() / corrections[1].sqrt() + config.eps
        adamw = (config.adamw_rate / corrections[0]) * first / denominator
        ahead = torch.lerp(gradient, first, config.momentum) if config.nesterov else first
        pieces = zip(
            self._matrices, ahead.split(self._sizes), adamw.split(self._sizes),
            second.split(self._sizes), vector.split(self._sizes),
            (self._decays(vector)).split(self._sizes), strict=True,
        )  # fmt: skip
        moved = []
        for index, (shape, way, plain, square, weights, decay) in enumerate(pieces):
            if shape is None:
                shrunk = weights * (1 - lr * config.adamw_rate * decay)
                moved.append(shrunk - lr * plain)
                kept.append(square)
                continue
            matrix = self._part.shaped(index, way)
            step = orthogonalised(matrix, config.newton_schulz_steps)
            step = self._part.flattened(index, step)
            rows, columns = shape
            factor = math.sqrt(max(1.0, rows / columns))
            if config.adjust == "match_rms_adamw":
                factor = 0.2 * math.sqrt(max(rows, columns))
            moved.append(weights * (1 - lr * decay) - (lr * factor) * step)
            # A matrix has no second moment: zeros are saved.
            kept.append(torch.zeros_like(square))
        return torch.cat(moved), [first, torch.cat(kept)]

    def _decays(self, vector: Tensor) -> Tensor:
        decay = self._decay
        return decay if isinstance(decay, Tensor) else torch.full_like(vector, decay)


def orthogonalised(matrix: Tensor, num_steps: int) -> Tensor:
    """Return approximately the nearest orthogonal matrix, by Newton-Schulz iterations in bfloat16."""
    found = matrix.bfloat16()
    is_tall = matrix.shape[0] > matrix.shape[1]
    if is_tall:
        found = found.T
    found = found / found.norm().clamp(min=_EPS)
    for _ in range(num_steps):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), found, beta=_A)
    return (found.T if is_tall else found).to(matrix.dtype)
