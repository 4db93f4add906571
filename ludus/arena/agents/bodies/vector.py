"""The body `vector`: a multilayer perceptron on the observation as one row of numbers, as in an
environment.

It reads no messages. Numbers of different scales may be normalised first, by running statistics that are
part of the weights.

Shapes: N rows, D features, X numbers.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ludus.arena.agents.body import Body, BodyFeatures, Rows
from ludus.arena.scenario import ObservationSizes
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
_FARTHEST = 10.0
"""Normalised numbers are clamped to this distance from 0, so that a constant that changes once is
harmless."""


class VectorParameters(StrictConfig):
    """The size of the network, and the normalisation of its input."""

    kind: Literal["vector"]
    """A multilayer perceptron on one row of numbers, without messages."""
    widths: Annotated[list[Positive], Field(min_length=1)]
    """The width of each layer, an activation after each. The last is the number of features."""
    activation: Literal["relu", "tanh"]
    """The activation after each layer."""
    normalise_observations: bool
    """Normalise each number to mean 0 and standard deviation 1, by running statistics of the agent's
    observations in the iterations before; they are not updated while it is frozen, evaluated or tested.
    """


@register("body", "vector")
class Vector(Body):
    """A multilayer perceptron on all data except messages, flattened."""

    Config = VectorParameters
    has_symbols = False

    def __init__(self, params: VectorParameters, seen: ObservationSizes) -> None:
        super().__init__()
        self.width = params.widths[-1]
        self.names = sorted(seen.shapes)
        numbers = sum(math.prod(shape) for shape in seen.shapes.values())
        made: list[nn.Module] = []
        for wide, narrow in zip([numbers, *params.widths], params.widths, strict=False):
            linear = nn.Linear(wide, narrow)
            nn.init.orthogonal_(linear.weight, math.sqrt(2.0))
            nn.init.zeros_(linear.bias)
            made += [linear, _ACTIVATIONS[params.activation]()]
        self.layers = nn.Sequential(*made)
        self.observed = Observed(numbers) if params.normalise_observations else None

    def forward(self, rows: Rows) -> BodyFeatures:
        """Return the features of the row."""
        flat_NX = self._flat(rows)
        if self.observed is not None:
            flat_NX = self.observed(flat_NX)
        whole_ND: Tensor = self.layers(flat_NX)
        return BodyFeatures(whole_ND, None, None)

    def observe(self, rows: Rows) -> None:
        """Update the running statistics with the rows in which the agent was present."""
        if self.observed is not None:
            self.observed.take_in(self._flat(rows), rows.get("there"))

    @property
    def has_observed(self) -> bool:
        """Whether the statistics hold anything yet; without normalisation, always true."""
        return self.observed is None or bool(self.observed.observed_count > 0)

    def _flat(self, rows: Rows) -> Tensor:
        each = [rows[name].flatten(1).to(torch.float32) for name in self.names]
        return torch.cat(each, -1) if len(each) > 1 else each[0]


class Observed(nn.Module):
    """Running mean and variance of numbers, each row counted once, and normalisation by them."""

    observed_mean: Tensor
    observed_squares: Tensor
    observed_count: Tensor

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.register_buffer("observed_mean", torch.zeros(numbers, dtype=torch.float64))
        self.register_buffer("observed_squares", torch.zeros(numbers, dtype=torch.float64))
        self.register_buffer("observed_count", torch.zeros((), dtype=torch.float64))

    def forward(self, rows_NX: Tensor) -> Tensor:
        """Return normalised rows; unchanged while nothing has been observed."""
        variance_X = self.observed_squares / self.observed_count.clamp_min(1.0)
        # Before anything is observed the variance is 0 and must count as 1.
        scale_X = torch.where(variance_X > 1e-8, variance_X, 1.0).rsqrt()
        moved = (rows_NX - self.observed_mean.float()) * scale_X.float()
        return moved.clamp(-_FARTHEST, _FARTHEST)

    @torch.no_grad()
    def take_in(self, rows_NX: Tensor, counts_N: Tensor | None = None) -> None:
        """Add the rows that count, by Chan's method: exact for any division of rows into batches."""
        rows = rows_NX.double()
        weights_N1 = (
            torch.ones_like(rows[:, :1]) if counts_N is None else counts_N.double()[:, None]
        )
        count = weights_N1.sum()
        mean_X = (rows * weights_N1).sum(0) / count.clamp_min(1.0)
        total = self.observed_count + count
        share = count / total.clamp_min(1.0)
        apart_X = mean_X - self.observed_mean
        squares_X = ((rows - mean_X) * weights_N1).square().sum(0)
        squares_X += apart_X.square() * (self.observed_count * share)
        self.observed_squares.add_(squares_X)
        self.observed_mean.add_(apart_X * share)
        self.observed_count.copy_(total)
