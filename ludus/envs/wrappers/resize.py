"""Resize images."""

from __future__ import annotations

import importlib.util
from typing import Literal

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.envs.config import AnyEnv


@register("wrapper", "resize")
class Resize:
    """Builds gymnasium's ResizeObservation."""

    class Config(StrictConfig):
        """The size of the image."""

        kind: Literal["resize"]
        """Resize uint8 images; needs OpenCV."""
        height: Positive
        """The height in pixels."""
        width: Positive
        """The width in pixels."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with observations of this size."""
        if importlib.util.find_spec("cv2") is None:
            raise ConfigError(
                "the wrapper resize needs OpenCV; install it with: pip install opencv-python-headless"
            )
        return gymnasium.wrappers.ResizeObservation(env, (config.height, config.width))
