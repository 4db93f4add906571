"""Let the env now and then do the action before instead of the one it is given."""

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
    """An env that repeats the action before with some probability.

    Its generator is seeded by reset's seed and is no one else's: it repeats with envs that forget to
    seed their own, and adding the wrapper does not shift what the env draws.
    """

    class Config(StrictConfig):
        """How often."""

        kind: Literal["sticky_action"]
        """Now and then do the action before instead of the one given."""
        probability: Annotated[float, Field(ge=0, lt=1)]
        """How often, as a probability at each step; 0.25 is usual for Atari games."""

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.probability = config.probability
        self._random = np.random.default_rng()
        self._before: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its first action is always done."""
        if seed is not None:
            # The second number keeps these draws apart from an env's that uses the seed alone.
            self._random = np.random.default_rng([seed, 1])
        self._before = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Do the action, or the one before."""
        if self._before is not None and self._random.random() < self.probability:
            action = self._before
        self._before = action
        return self.env.step(action)
