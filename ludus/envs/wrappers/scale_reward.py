"""Multiply rewards by a constant."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "scale_reward")
class ScaleReward(gymnasium.RewardWrapper[Any, Any]):
    """Multiplies rewards by a constant."""

    class Config(StrictConfig):
        """The factor."""

        kind: Literal["scale_reward"]
        """Multiply rewards by a constant."""
        scale: PositiveFloat
        """The factor of every reward."""

    changes_rewards = True
    is_stateless = True

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.scale = config.scale

    def reward(self, reward: SupportsFloat) -> float:
        """Return the scaled reward."""
        return float(reward) * self.scale
