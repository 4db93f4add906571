"""A convolutional body with one dense layer, for image observations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from ludus.config.base import Positive, PositiveFloat
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError
from ludus.nn.models.mlp import ACTIVATIONS
from ludus.rl.networks._body import Activation, Init, initialise

PositiveList = Annotated[list[Positive], Field(min_length=1)]


@register("network", "cnn")
class CnnBody(nn.Module):
    """Unpadded convolutions, then one dense layer; an activation follows each of them."""

    class Config(StrictConfig):
        """The shape of the body."""

        kind: Literal["cnn"]
        """Convolutions and a dense layer."""
        channels: PositiveList
        """The number of output channels of each convolution."""
        kernels: PositiveList
        """The height and width of each convolution's kernel."""
        strides: PositiveList
        """The stride of each convolution, in pixels."""
        width: Positive
        """The width of the dense layer."""
        activation: Activation
        """The activation after each convolution and the dense layer."""
        init: Init
        """Initialisation: torch's default, or orthogonal with gain sqrt(2) and zero bias."""
        channels_last: bool
        """Whether images are height x width x channels rather than channels x height x width."""
        scale: PositiveFloat
        """The divisor of pixels: 255 for images of bytes, 1 for those already from 0 to 1."""

        def problems(self) -> Iterator[str]:
            """Yield a message if the lists differ in length."""
            lengths = [len(self.channels), len(self.kernels), len(self.strides)]
            if len(set(lengths)) > 1:
                yield (
                    "channels, kernels and strides list {}, {} and {} convolutions; give each of"
                    " them one number a convolution".format(*lengths)
                )

    def __init__(self, config: Config, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(obs_shape) != 3:
            raise ConfigError(
                f"network.kind is cnn, but an observation has the shape {list(obs_shape)}, which is"
                " no image of three dimensions; use the kind mlp"
            )
        self._channels_last, self._scale = config.channels_last, config.scale
        channels, height, width = obs_shape
        if config.channels_last:
            height, width, channels = obs_shape
        layers: list[nn.Module] = []
        for wide, kernel, stride in zip(
            config.channels, config.kernels, config.strides, strict=True
        ):
            if kernel > min(height, width):
                raise ConfigError(
                    f"network.kernels: convolution {len(layers) // 2 + 1} has a kernel of {kernel},"
                    f" but the image is {height} x {width} by then (observations are"
                    f" {list(obs_shape)}, channels_last is {str(config.channels_last).lower()});"
                    " give smaller kernels or strides, or larger images"
                )
            layers += [nn.Conv2d(channels, wide, kernel, stride), ACTIVATIONS[config.activation]()]
            channels = wide
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        dense = nn.Linear(channels * height * width, config.width)
        layers += [nn.Flatten(), dense, ACTIVATIONS[config.activation]()]
        self.layers = nn.Sequential(*layers)
        self.num_features = config.width
        initialise(self.layers, config.init)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features, one row per image."""
        images = obs.permute(0, 3, 1, 2) if self._channels_last else obs
        # Dividing bytes gives float32; floats keep their precision.
        features: Tensor = self.layers(images / self._scale)
        return features
