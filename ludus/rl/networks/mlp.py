"""A body of fully connected layers, for observations that are vectors."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.nn.models.mlp import ACTIVATIONS
from ludus.rl.networks._body import Activation, Init, initialise

_IN_PLACE = {nn.ReLU: torch.relu_, nn.Tanh: torch.tanh_}


@register("network", "mlp")
class MlpBody(nn.Module):
    """Hidden layers, each followed by its activation; observations of any shape are flattened."""

    class Config(StrictConfig):
        """The shape of the body."""

        kind: Literal["mlp"]
        """Fully connected layers."""
        widths: list[Positive]
        """The width of each hidden layer; an empty list passes the observation on unchanged."""
        activation: Activation
        """The activation after each hidden layer, including the last."""
        layer_norm: bool
        """Layer normalisation of each hidden layer, before its activation."""
        init: Init
        """Initialisation: torch's default, or orthogonal with gain sqrt(2) and zero bias."""

    def __init__(self, config: Config, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [] if len(obs_shape) == 1 else [nn.Flatten()]
        width = math.prod(obs_shape)
        for hidden in config.widths:
            layers.append(nn.Linear(width, hidden))
            if config.layer_norm:
                layers.append(nn.LayerNorm(hidden))
            layers.append(ACTIVATIONS[config.activation]())
            width = hidden
        self.layers = nn.Sequential(*layers)
        self.num_features = width
        initialise(self.layers, config.init)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features, one row per observation."""
        x = obs if obs.is_floating_point() else obs.float()
        for layer in self.layers._modules.values():
            # Module.__call__ would cost half as much as the matrix product of a small batch.
            kind = type(layer)
            if kind is nn.Linear:
                x = functional.linear(x, layer.weight, layer.bias)  # type: ignore[arg-type]
            elif kind in _IN_PLACE:
                # In place: the layer before is linear or a norm, whose gradient does not need its output.
                x = _IN_PLACE[kind](x)
            else:
                assert layer is not None
                x = layer(x)
        return x
