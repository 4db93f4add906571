"""The env's own rewards, if wrappers around it change them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray


class OwnReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper below those that change rewards, which sums the rewards until they are read."""

    is_stateless = True

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.total = 0.0

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and add its reward; one that is not a number is refused where steps are checked."""
        result = self.env.step(action)
        with contextlib.suppress(TypeError, ValueError, IndexError):
            self.total += float(result[1])
        return result


class OwnRewards:
    """The own rewards of several envs at their last step, in one array that is filled in place."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], rewards: NDArray[Any]) -> None:
        """Without wrappers that change rewards the array is `rewards` itself."""
        own = [one for env in envs for one in wrappers_of(env) if isinstance(one, OwnReward)]
        self._tallies = own
        self.values = np.zeros_like(rewards) if self._tallies else rewards

    def read(self) -> None:
        """Read the rewards since the last call."""
        for index, tally in enumerate(self._tallies):
            self.values[index], tally.total = tally.total, 0.0


def wrappers_of(env: object) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """Yield the wrappers around an env, the outermost first."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
