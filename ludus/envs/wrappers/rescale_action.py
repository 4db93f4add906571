"""Rescale actions, so that the agent acts in another range than the env's own."""

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
    """Builds gymnasium's RescaleAction."""

    class Config(StrictConfig):
        """The range of the agent's actions."""

        kind: Literal["rescale_action"]
        """Rescale actions linearly from this range to the env's own, number by number."""
        low: float
        """The agent's action for the env's lower bound."""
        high: float
        """The agent's action for the env's upper bound."""

        def problems(self) -> Iterator[str]:
            """Yield a problem if the range is not in order."""
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
