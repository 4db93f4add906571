"""Truncate an episode after a number of steps."""

from __future__ import annotations

from typing import Literal

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "time_limit")
class TimeLimit:
    """Builds gymnasium's TimeLimit."""

    class Config(StrictConfig):
        """The maximum length of an episode."""

        kind: Literal["time_limit"]
        """Truncate an episode that is too long."""
        max_episode_steps: Positive
        """The maximum number of steps of an episode, counted as this wrapper sees them."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with the time limit."""
        return gymnasium.wrappers.TimeLimit(env, config.max_episode_steps)
