"""Truncate an episode after a number of steps."""

from __future__ import annotations

from typing import Literal

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "time_limit")
class TimeLimit:
    """Makes gymnasium's TimeLimit."""

    class Config(StrictConfig):
        """How long an episode may be."""

        kind: Literal["time_limit"]
        """Truncate an episode that is too long."""
        max_episode_steps: Positive
        """How many steps an episode may have, counted as this wrapper sees them."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with the limit around it."""
        return gymnasium.wrappers.TimeLimit(env, config.max_episode_steps)
