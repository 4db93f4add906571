"""The body `cnn`: a small convolutional network on an image, with a plane for each message.

A plane is 1 in the patch that its message named, 0 elsewhere.

Shapes: N rows, S the side of an image, P patches along a side, V = P x P symbols, D features.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.arena.agents.body import Body, BodyFeatures, Rows
from ludus.arena.scenario import ObservationSizes
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError


class CnnParameters(StrictConfig):
    """The size of the network, and what it sees."""

    kind: Literal["cnn"]
    """A convolutional network on `image`."""
    num_layers: Positive
    """The number of 3 x 3 convolutions."""
    width: Positive
    """The number of features of a patch."""
    sees: Literal["all", "named"]
    """Whether it sees the whole image, or only the patches that messages have named so far."""


@register("body", "cnn")
class Cnn(Body):
    """A convolutional network on `image` (N, channels, S, S)."""

    Config = CnnParameters
    needs = ("image",)

    def __init__(self, params: CnnParameters, seen: ObservationSizes) -> None:
        super().__init__()
        self.params, width = params, params.width
        self.width = 2 * width
        channels, side, other_side = seen.shapes["image"]
        self.per_side = math.isqrt(seen.num_symbols)
        if side != other_side or self.per_side**2 != seen.num_symbols or side % self.per_side:
            raise ConfigError(
                f"a cnn body names patches of a square grid, but an image is {side} x {other_side} pixels"
                f" and there are {seen.num_symbols} symbols; choose another body, or another patch size"
            )
        self.patch = side // self.per_side
        planes = seen.max_message_rounds * seen.num_channels
        widths = [channels + planes, *[width] * params.num_layers]
        self.layers = nn.ModuleList(
            nn.Conv2d(wide, narrow, 3, padding=1) for wide, narrow in itertools.pairwise(widths)
        )
        self.sum_up = nn.Linear(seen.num_symbols * width, width)
        self.clock = nn.Embedding(seen.max_message_rounds + 1, width)

    def forward(self, rows: Rows) -> BodyFeatures:
        """Return features of images and of their patches."""
        image = rows["image"]
        marks = self._marks(rows["message_history"])
        if self.params.sees == "named":
            image = image * marks.amax(1, keepdim=True)
        h = torch.cat([image, marks], 1)
        for layer in self.layers:
            h = torch.relu(layer(h))
        patches_NVD = functional.avg_pool2d(h, self.patch).flatten(2).transpose(1, 2)
        whole_ND = torch.relu(self.sum_up(patches_NVD.flatten(1)))
        about = whole_ND.unsqueeze(1).expand_as(patches_NVD)
        whole = torch.cat([whole_ND, self.clock(rows["round"])], -1)
        return BodyFeatures(whole, torch.cat([patches_NVD, about], -1), None)

    def _marks(self, history: Tensor) -> Tensor:
        """Return (N, R x C, S, S) planes."""
        flat = history.flatten(1).unsqueeze(-1)
        symbols = torch.arange(self.per_side**2, device=history.device)
        grid = (flat == symbols).to(torch.float32).unflatten(-1, (self.per_side, self.per_side))
        planes: Tensor = grid.repeat_interleave(self.patch, -1).repeat_interleave(self.patch, -2)
        return planes
