"""What a config says of a network body, and how bodies and their heads are made from it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import SerializeAsAny
from torch import nn

from ludus.registry import find
from ludus.rl.given_body import given_body
from ludus.strict_config import StrictConfig, registered

NetworkSection = Annotated[SerializeAsAny[StrictConfig], registered("network")]

Activation = Literal["relu", "tanh", "gelu", "silu"]
Init = Literal["torch", "orthogonal"]


def make_body(section: StrictConfig, obs_shape: tuple[int, ...]) -> nn.Module:
    """Return the network body of this section for observations of this shape.

    It takes (B, *obs_shape) and returns (B, F), where F is its `num_features`.
    """
    if (given := given_body(obs_shape)) is not None:
        return given
    kind: str = section.kind  # type: ignore[attr-defined]
    body: nn.Module = find("network", kind)(section, tuple(obs_shape))
    return body


def head(inputs: int, outputs: int, *, gain: float | None) -> nn.Linear:
    """Return the linear layer that ends a network.

    With a gain the weights are orthogonal, scaled by it, and the bias is zero; with None they are
    as torch draws them.
    """
    layer = nn.Linear(inputs, outputs)
    if gain is not None:
        make_orthogonal(layer, gain=gain)
    return layer


def initialise(layers: nn.Sequential, init: Init) -> None:
    """Redraw the weights of linear layers and convolutions, unless torch's own draw is wanted."""
    if init == "orthogonal":
        for layer in layers:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                make_orthogonal(layer, gain=math.sqrt(2))


def make_orthogonal(layer: nn.Linear | nn.Conv2d, *, gain: float) -> None:
    """Give a layer orthogonal weights of this gain and a bias of zero."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
