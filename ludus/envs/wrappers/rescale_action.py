"""Let the agent act in another range than the env's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.envs.config import AnyEnv


@register("wrapper", "rescale_action")
class RescaleAction:
    """Makes gymnasium's RescaleAction."""

    class Config(StrictConfig):
        """The range the agent sees."""

        kind: Literal["rescale_action"]
        """Bring actions from the range below to the env's own, number by number."""
        low: float
        """What the agent gives for the env's lowest action."""
        high: float
        """What the agent gives for the env's highest action."""

        def problems(self) -> Iterator[str]:
            """Yield what is wrong with the range."""
            if self.low >= self.high:
                yield f"low is {self.low}, which is not below high, {self.high}"

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with rescaled actions."""
        space = env.action_space
        if not (isinstance(space, Box) and np.isfinite([space.low, space.high]).all()):
            raise ConfigError(
                f"the wrapper rescale_action needs actions with bounds on every number, not {space}"
            )
        return gymnasium.wrappers.RescaleAction(
            env, np.float32(config.low), np.float32(config.high)
        )
