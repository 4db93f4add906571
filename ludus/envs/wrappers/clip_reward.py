"""Clip rewards to bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, SupportsFloat

import gymnasium

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "clip_reward")
class ClipReward(gymnasium.RewardWrapper[Any, Any]):
    """Clips rewards to bounds."""

    class Config(StrictConfig):
        """The bounds."""

        kind: Literal["clip_reward"]
        """Clip rewards to bounds."""
        low: float
        """The lower bound of rewards."""
        high: float
        """The upper bound of rewards."""

        def problems(self) -> Iterator[str]:
            """Yield a problem if the bounds are not in order."""
            if self.low >= self.high:
                yield f"low is {self.low}, which is not below high, {self.high}"

    changes_rewards = True
    is_stateless = True

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.low, self.high = config.low, config.high

    def reward(self, reward: SupportsFloat) -> float:
        """Return the clipped reward; NaN stays NaN, and is reported by the check of the step."""
        value = float(reward)
        return self.low if value < self.low else self.high if value > self.high else value
