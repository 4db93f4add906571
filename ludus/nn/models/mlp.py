"""A multi-layer perceptron."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ludus.config.base import Fraction, Positive, StrictConfig
from ludus.config.registry import register

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


@register("model", "mlp")
class MultiLayerPerceptron(nn.Module):
    """Fully connected layers; inputs of any shape are flattened to one row per example."""

    class Config(StrictConfig):
        """The shape of the network."""

        kind: Literal["mlp"]
        """Fully connected layers."""
        inputs: Positive
        """The number of features of one example."""
        widths: list[Positive]
        """The width of each hidden layer; an empty list makes a linear model."""
        outputs: Positive
        """The number of outputs: one per class, or one per target."""
        activation: Literal["relu", "tanh", "gelu", "silu"]
        """The activation between two layers."""
        layer_norm: bool
        """Apply layer norm to each hidden layer before its activation."""
        dropout: Fraction
        """The dropout rate: the fraction of hidden units zeroed while training."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = config.inputs
        for hidden in config.widths:
            layers.append(nn.Linear(width, hidden))
            if config.layer_norm:
                layers.append(nn.LayerNorm(hidden))
            layers.append(ACTIVATIONS[config.activation]())
            if config.dropout:
                layers.append(nn.Dropout(config.dropout))
            width = hidden
        layers.append(nn.Linear(width, config.outputs))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, one row per example."""
        out: Tensor = self.layers(x.flatten(1))
        return out
