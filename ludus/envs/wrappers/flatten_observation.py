"""Flatten observations of any structure into one vector."""

from __future__ import annotations

from typing import Literal

import gymnasium

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.envs.config import AnyEnv


@register("wrapper", "flatten_observation")
class FlattenObservation:
    """Builds gymnasium's FlattenObservation: parts in the space's order, discrete ones one-hot encoded."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["flatten_observation"]
        """Flatten dicts, tuples and arrays into one vector."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with flat observations."""
        if not env.observation_space.is_np_flattenable:
            raise ConfigError(
                f"the wrapper flatten_observation cannot flatten {env.observation_space}: "
                "its observations differ in length"
            )
        return gymnasium.wrappers.FlattenObservation(env)
