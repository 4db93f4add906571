"""Do each action several times (frame skipping)."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "action_repeat")
class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env in which one step is several of the inner env's, with their rewards added up."""

    class Config(StrictConfig):
        """How many times."""

        kind: Literal["action_repeat"]
        """Do each action several times; also known as frame skipping."""
        num_repeats: Positive
        """How many inner steps make one step; an episode that ends among them ends the step."""

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.num_repeats = config.num_repeats

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Return the last observation and the sum of the rewards."""
        total = 0.0
        for _ in range(self.num_repeats):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
