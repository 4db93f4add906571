"""Convert colour images to greyscale."""

from __future__ import annotations

from typing import Literal

import gymnasium

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "grayscale")
class Grayscale:
    """Builds gymnasium's GrayscaleObservation."""

    class Config(StrictConfig):
        """The shape of the grey image."""

        kind: Literal["grayscale"]
        """Convert (height, width, 3) uint8 images to greyscale."""
        keep_channel: bool
        """Keep a last axis of 1; otherwise the image is (height, width)."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with greyscale observations."""
        return gymnasium.wrappers.GrayscaleObservation(env, keep_dim=config.keep_channel)
