"""Keep rewards within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, SupportsFloat

import gymnasium

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "clip_reward")
class ClipReward(gymnasium.RewardWrapper[Any, Any]):
    """An env whose rewards are moved to the nearest bound."""

    class Config(StrictConfig):
        """The bounds."""

        kind: Literal["clip_reward"]
        """Keep rewards within bounds."""
        low: float
        """No reward is below this."""
        high: float
        """No reward is above this."""

        def problems(self) -> Iterator[str]:
            """Yield what is wrong with the bounds."""
            if self.low >= self.high:
                yield f"low is {self.low}, which is not below high, {self.high}"

    changes_rewards = True
    is_stateless = True

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.low, self.high = config.low, config.high

    def reward(self, reward: SupportsFloat) -> float:
        """Return the reward within the bounds; one that is no number stays so, and is found out."""
        value = float(reward)
        return self.low if value < self.low else self.high if value > self.high else value
