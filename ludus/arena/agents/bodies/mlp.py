"""The body `mlp`: a multilayer perceptron on the flattened data and the messages so far.

Shapes: N rows, R rounds, C channels, V symbols, D features.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ludus.arena.agents.body import Body, BodyFeatures, Rows
from ludus.arena.agents.heads import layers
from ludus.arena.scenario import ObservationSizes
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


class MlpParameters(StrictConfig):
    """The size of the network."""

    kind: Literal["mlp"]
    """A multilayer perceptron on all data as one row."""
    widths: Annotated[list[Positive], Field(min_length=1)]
    """The width of each layer; ReLU follows each. The last is the number of features."""


@register("body", "mlp")
class Mlp(Body):
    """A multilayer perceptron on each datum flattened, and each message and the round one-hot."""

    Config = MlpParameters

    def __init__(self, params: MlpParameters, seen: ObservationSizes) -> None:
        super().__init__()
        self.width = params.widths[-1]
        self.names = sorted(seen.shapes)
        self.num_symbols, self.num_rounds = seen.num_symbols, seen.max_message_rounds
        numbers = sum(math.prod(shape) for shape in seen.shapes.values())
        # One more than there are symbols and rounds: silence, and the moment after the last round.
        heard = seen.max_message_rounds * seen.num_channels * (seen.num_symbols + 1)
        self.layers = layers([numbers + heard + seen.max_message_rounds + 1, *params.widths])
        self.symbols = nn.Parameter(torch.randn(seen.num_symbols, self.width))

    def forward(self, rows: Rows) -> BodyFeatures:
        """Return the features of the row, and for each symbol those features weighted by its own."""
        history_NRC, round_N = rows["message_history"], rows["round"]
        N = len(round_N)
        heard = _one_hot(history_NRC + 1, self.num_symbols + 1)
        clock = _one_hot(round_N, self.num_rounds + 1)
        each = [*(rows[name] for name in self.names), heard, clock]
        # By explicit sizes, as an environment has no rounds and an empty message history.
        sizes = [math.prod(one.shape[1:]) for one in each]
        rows_of_each = zip(each, sizes, strict=True)
        flat = torch.cat([one.reshape(N, size).float() for one, size in rows_of_each], -1)
        whole_ND: Tensor = torch.relu(self.layers(flat))
        return BodyFeatures(whole_ND, whole_ND.unsqueeze(1) * self.symbols, None)


def _one_hot(index: Tensor, count: int) -> Tensor:
    """Return one-hot rows; torch's own function checks the values, a host sync."""
    return index.unsqueeze(-1) == torch.arange(count, device=index.device)
