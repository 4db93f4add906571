"""The outcome of a collection: the last step of every env, copied only when read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import states
from ludus.envs.vector import VectorEnv
from ludus.envs.workers import WorkerVectorEnv

if TYPE_CHECKING:
    from ludus.rl.sampling.sampler import SyncSampler


class LastStep:
    """The last actions and their results, one row per env; a part of the sampler.

    It is kept because a hook may look at it after a resume, when the envs no longer hold it.
    """

    def __init__(self, env: VectorEnv | WorkerVectorEnv) -> None:
        self._env = env
        self._loaded: dict[str, Any] | None = None
        self._loaded_at = -1

    def read(self, actions: NDArray[Any] | None, num_env_steps: int) -> dict[str, Any]:
        """Return copies of everything; empty before the first step."""
        if self._loaded is not None and self._loaded_at == num_env_steps:
            return {name: np.copy(value) for name, value in self._loaded.items()}
        if actions is None:
            return {}
        found = {"action": actions, **self._results()}
        return {name: np.copy(value) for name, value in found.items()}

    def _results(self) -> dict[str, NDArray[Any]]:
        env = self._env
        return {
            "next_obs": env.next_obs,
            "reward": env.rewards,
            "terminated": env.terminated,
            "truncated": env.truncated,
            "success": env.successes,
        }

    def load(self, state: Mapping[str, Any], num_env_steps: int) -> None:
        """Restore a saved last step."""
        own, num_envs = self._results(), self._env.num_envs
        states.check_keys(state, optional=("action", *own))
        if state:
            states.check_keys(state, "action", *own)
            for name, array in own.items():
                states.like(state, name, array)
            if not isinstance(state["action"], np.ndarray) or len(state["action"]) != num_envs:
                raise states.StateError("action", f"is not an array of {num_envs} rows")
        self._loaded, self._loaded_at = dict(state) or None, num_env_steps


class RolloutData(Mapping[str, Any]):
    """The outcome of one collection: `num_steps`, and the last step of every env.

    `action`, `next_obs`, `reward`, `terminated` and `truncated` have one row per env; `info` holds
    `is_success`, 1 or 0 if an ended episode reported it. Read it before the next collection.
    """

    NAMES = ("action", "next_obs", "reward", "terminated", "truncated", "info", "num_steps")

    def __init__(
        self, sampler: SyncSampler, to_env: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> None:
        self._sampler = sampler
        self._to_env = to_env

    def __getitem__(self, name: str) -> Any:
        if name not in self.NAMES:
            raise KeyError(name)
        if name == "num_steps":
            return self._sampler.num_rollout_steps
        step = self._sampler.last_step()
        if name == "info":
            return {"is_success": step["success"]}
        return self._to_env(step[name]) if name == "action" else step[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)
