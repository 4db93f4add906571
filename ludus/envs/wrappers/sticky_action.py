"""Sticky actions: with some probability the env repeats the previous action."""

from __future__ import annotations

from typing import Annotated, Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from pydantic import Field

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "sticky_action")
class StickyAction(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats the previous action with some probability.

    Its generator is seeded by reset's seed and used by nothing else: it is deterministic even if the env
    forgets to seed its own, and adding the wrapper does not shift the env's draws.
    """

    class Config(StrictConfig):
        """The probability."""

        kind: Literal["sticky_action"]
        """Sticky actions: with some probability repeat the previous action in place of the one given."""
        probability: Annotated[float, Field(ge=0, lt=1)]
        """The probability at each step; 0.25 is usual for Atari games."""

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.probability = config.probability
        self._random = np.random.default_rng()
        self._before: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its first action is always taken."""
        if seed is not None:
            # The second number separates these draws from those of an env that uses the seed alone.
            self._random = np.random.default_rng([seed, 1])
        self._before = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the action, or the previous one."""
        if self._before is not None and self._random.random() < self.probability:
            action = self._before
        self._before = action
        return self.env.step(action)
