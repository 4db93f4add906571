"""A small convolutional network for images."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn

from ludus.config.base import Fraction, Positive, StrictConfig
from ludus.config.registry import register
from ludus.nn.models.mlp import ACTIVATIONS


@register("model", "cnn")
class ConvolutionalNetwork(nn.Module):
    """Blocks of convolution, batch norm, activation and 2x2 pooling, then one linear layer."""

    class Config(StrictConfig):
        """The shape of the network."""

        may_change: ClassVar[tuple[str, ...]] = ("dropout",)

        kind: Literal["cnn"]
        """Convolutional blocks and a linear layer."""
        channels: Positive
        """The number of channels of an input image."""
        height: Positive
        """The height of an input image; flat inputs are reshaped to channels x height x width."""
        width: Positive
        """The width of an input image."""
        blocks: list[Positive]
        """The channels of each block; every block halves the image."""
        outputs: Positive
        """The number of outputs: one per class, or one per target."""
        activation: Literal["relu", "tanh", "gelu", "silu"]
        """The activation after each convolution."""
        dropout: Fraction
        """The dropout rate: the fraction of features zeroed before the linear layer while training."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._shape = (config.channels, config.height, config.width)
        layers: list[nn.Module] = []
        channels, height, width = self._shape
        for wide in config.blocks:
            layers += [
                nn.Conv2d(channels, wide, 3, padding=1),
                nn.BatchNorm2d(wide),
                ACTIVATIONS[config.activation](),
                nn.MaxPool2d(2, ceil_mode=True),
            ]
            channels, height, width = wide, -(-height // 2), -(-width // 2)
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Dropout(config.dropout), nn.Linear(channels * height * width, config.outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, one row per example."""
        out: Tensor = self.head(self.blocks(x.reshape(-1, *self._shape)).flatten(1))
        return out
