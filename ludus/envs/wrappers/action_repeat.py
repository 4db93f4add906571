"""Repeat each action several times (frame skip)."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "action_repeat")
class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action in the inner env, with the rewards summed."""

    class Config(StrictConfig):
        """The number of repeats."""

        kind: Literal["action_repeat"]
        """Action repeat (frame skip): take each action several times."""
        num_repeats: Positive
        """The number of inner steps per step; an episode that ends among them ends the step."""

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
