"""SyncSampler: one step of every env at a time, from the agent's action to the buffer."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core import states
from ludus.envs.vector import VectorEnv
from ludus.envs.workers import WorkerVectorEnv
from ludus.rl.agent import Agent
from ludus.rl.sampling.last_step import LastStep
from ludus.rl.sampling.normalise import Normaliser

Array = NDArray[Any]
Envs = VectorEnv | WorkerVectorEnv


class Processor(Protocol):
    """Turns steps into transitions for a buffer; it holds the observation of each action."""

    def begin(self, obs_ND: Array, masks_NA: Array | None, /) -> None: ...
    def process(self, actions_Nk: Array, env: Envs, buffer: Any) -> None: ...
    def forget(self, cut_N: Array, obs_ND: Array, masks_NA: Array | None, /) -> None: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


class Episodes:
    """Sums the current episodes and stores the returns and lengths of the latest finished ones."""

    def __init__(self, num_envs: int, window: int, *, is_shaped: bool = False) -> None:
        """With `is_shaped`, where wrappers change rewards, the shaped returns are tracked as well."""
        self.num_ended = 0
        self._is_shaped = is_shaped
        self._shaped_N = np.zeros(num_envs)
        """The return so far by the rewards that the agent learns from."""
        self._latest_shaped: deque[float] = deque(maxlen=window)
        self._returns_N = np.zeros(num_envs)
        self._steps_N = np.zeros(num_envs, dtype=np.int64)
        self._latest: deque[tuple[float, int, float]] = deque(maxlen=window)
        """Return, length and success (NaN if not reported) of each."""

    def count(self, env: Envs) -> None:
        """Add the latest step of every env."""
        self._returns_N += env.own_rewards
        self._steps_N += 1
        if self._is_shaped:
            self._shaped_N += env.rewards
        if env.has_ended:
            for index in np.flatnonzero(env.terminated | env.truncated).tolist():
                success = float(env.successes[index])
                self._latest.append(
                    (float(self._returns_N[index]), int(self._steps_N[index]), success)
                )
                if self._is_shaped:
                    self._latest_shaped.append(float(self._shaped_N[index]))
                self._returns_N[index] = self._steps_N[index] = self._shaped_N[index] = 0
                self.num_ended += 1

    def forget(self, cut_N: Array) -> None:
        """Drop the episodes that a restore had to cut: their returns would be incomplete."""
        self._returns_N[cut_N] = self._steps_N[cut_N] = self._shaped_N[cut_N] = 0

    @property
    def returns_so_far(self) -> Array:
        """The return so far of each env's current episode."""
        return self._returns_N.copy()

    @property
    def latest_returns(self) -> list[float]:
        """The returns of the latest finished episodes, oldest first."""
        return [one[0] for one in self._latest]

    def metrics(self) -> dict[str, float]:
        """Return the means over the latest episodes; empty before the first has ended."""
        if not self._latest:
            return {}
        returns, lengths, successes = (
            np.asarray(column) for column in zip(*self._latest, strict=True)
        )
        found = {
            "rollout/ep_rew_mean": float(returns.mean()),
            "rollout/ep_len_mean": float(lengths.mean()),
            "rollout/episodes": float(self.num_ended),
        }
        if self._latest_shaped:
            found["rollout/ep_shaped_rew_mean"] = float(np.mean(self._latest_shaped))
        is_known = ~np.isnan(successes)
        if is_known.any():
            found["rollout/success_rate"] = float(successes[is_known].mean())
        return found

    def state_dict(self) -> dict[str, Any]:
        state = {
            "num_ended": self.num_ended,
            "returns": self._returns_N,
            "steps": self._steps_N,
            "latest": np.asarray(self._latest, dtype=np.float64).reshape(-1, 3),
        }
        if self._is_shaped:
            latest = np.asarray(self._latest_shaped, dtype=np.float64)
            state["shaped"] = {"returns": self._shaped_N, "latest": latest}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        optional = ("shaped",) if self._is_shaped else ()
        states.check_keys(state, "num_ended", "returns", "steps", "latest", optional=optional)
        num_ended = states.whole(state, "num_ended")
        returns = states.like(state, "returns", self._returns_N, finite=True)
        steps = states.between(
            "steps", states.like(state, "steps", self._steps_N), low=0, high=2**53
        )
        latest = states.shaped(state, "latest", self._returns_N, (None, 3))
        if len(latest) > min(num_ended, self._latest.maxlen or 0):
            raise states.StateError(
                "latest", f"holds {len(latest)} episodes, more than there can be"
            )
        states.between("latest", latest[:, 0], low=-sys.float_info.max, high=sys.float_info.max)
        states.between("latest", latest[:, 1], low=0, high=2**53)
        # Runs of older versions stored the shaped returns alone.
        if "shaped" in state:
            self._check_shaped(state["shaped"])
        self.num_ended = num_ended
        self._returns_N[:], self._steps_N[:] = returns, steps
        self._latest.clear()
        rows: Any = latest.tolist()
        self._latest.extend((r, int(n), success) for r, n, success in rows)
        if "shaped" in state:
            self._shaped_N[:] = state["shaped"]["returns"]
            self._latest_shaped.clear()
            self._latest_shaped.extend(state["shaped"]["latest"].tolist())

    def _check_shaped(self, state: Mapping[str, Any]) -> None:
        with states.within("shaped"):
            states.check_keys(state, "returns", "latest")
            states.like(state, "returns", self._shaped_N, finite=True)
            latest = states.shaped(state, "latest", self._shaped_N, (None,), finite=True)
            if len(latest) > (self._latest_shaped.maxlen or 0):
                what = f"holds {len(latest)} episodes, more than are kept"
                raise states.StateError("latest", what)


class SyncSampler:
    """Steps an agent in all envs and pushes the transitions into a buffer."""

    def __init__(
        self,
        env: Envs,
        processor: Processor,
        episodes: Episodes,
        normaliser: Normaliser | None,
    ) -> None:
        self.env = env
        self.processor = processor
        self.episodes = episodes
        self.num_env_steps = 0
        """Number of env steps, over all envs and the whole run."""
        self.actions: Array | None = None
        """The last action of each env, as stored in the buffer."""
        self._rollout_start = (0, 0)
        self._last = LastStep(env)
        self._normaliser = normaliser
        self.reset()

    def begin(self) -> None:
        """Start the first episode of every env."""
        self.env.reset()
        if self._normaliser is not None:
            self._normaliser.gather_observations(self.env.obs)
        self.processor.begin(self.env.obs, self.env.masks)

    def sample_and_push(self, agent: Agent, buffer: Any) -> None:
        """Take one step in every env, and push the completed transitions."""
        env = self.env
        self.actions = actions = agent.act(env.obs, env.masks, self.num_env_steps)
        env.step(agent.to_env(actions))
        if self._normaliser is not None:
            self._normaliser.gather_rewards(env.rewards, env.terminated | env.truncated)
            self._normaliser.gather_observations(env.obs)
        if actions.ndim == 1:
            actions = actions[:, None]
        self.processor.process(actions, env, buffer)
        self.num_env_steps += env.num_envs
        self.episodes.count(env)

    def begin_rollout(self, num_opts: int) -> None:
        """Mark the start of a collection, after this many optimisation steps."""
        self._rollout_start = (self.num_env_steps, num_opts)

    @property
    def num_rollout_steps(self) -> int:
        """Number of env steps since the last collection started."""
        return self.num_env_steps - self._rollout_start[0]

    def num_rollout_updates(self, num_opts: int) -> int:
        """Return the number of optimisation steps since the last collection started."""
        return num_opts - self._rollout_start[1]

    def last_step(self) -> dict[str, Any]:
        """Return a copy of the last step of every env."""
        return self._last.read(self.actions, self.num_env_steps)

    def fps(self) -> float:
        """Return the env steps per second since the last reset."""
        elapsed = time.monotonic() - self._started - self._paused
        return (self.num_env_steps - self._first) / elapsed if elapsed > 0 else 0.0

    def pause(self, seconds: float) -> None:
        """Exclude time spent on something else, such as an evaluation, from the rate."""
        self._paused += seconds

    def reset(self) -> None:
        """Restart the measurement of the rate."""
        self._started = time.monotonic()
        self._paused = 0.0
        self._first = self.num_env_steps

    def drop_cut_episodes(self) -> None:
        """Drop the pending steps of episodes that a restore could not recover."""
        cut = self.env.cut
        if cut.any():
            self.processor.forget(cut, self.env.obs, self.env.masks)
            self.episodes.forget(cut)
            if self._normaliser is not None:
                self._normaliser.forget(cut)
            cut[:] = False

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_env_steps": self.num_env_steps,
            "processor": dict(self.processor.state_dict()),
            "episodes": self.episodes.state_dict(),
            "rollout_start": list(self._rollout_start),
            "last_step": self.last_step(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # Runs of the first version stored neither.
        optional = ("rollout_start", "last_step")
        states.check_keys(state, "num_env_steps", "processor", "episodes", optional=optional)
        num_env_steps = states.whole(state, "num_env_steps")
        start = states.rows({"rollout_start": [0, 0], **state}, "rollout_start", length=2)
        with states.within("rollout_start"):
            taken = (states.whole(start, 0, at_most=num_env_steps), states.whole(start, 1))
        with states.within("processor"):
            self.processor.load_state_dict(state["processor"])
        with states.within("episodes"):
            self.episodes.load_state_dict(state["episodes"])
        with states.within("last_step"):
            self._last.load(state.get("last_step", {}), num_env_steps)
        self.num_env_steps, self._rollout_start = num_env_steps, taken
        self.drop_cut_episodes()
        self.reset()
