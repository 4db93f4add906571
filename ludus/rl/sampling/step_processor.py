"""Turn the steps of a vector of envs into the transitions that a buffer holds.

    OneStep   o_t, a_t, r_t,                                        gamma,    o_t+1
    NStep     o_t, a_t, r_t + gamma r_t+1 + ... + gamma^k-1 r_t+k-1, gamma^k, o_t+k   with k = n, or
              fewer where the episode ended
    RolloutStep   the whole step, for the rollout of an on-policy agent

A terminated step has discount 0: nothing follows it. A truncated step keeps its discount, as its last
observation still has a value.

Shapes: N envs, D numbers of an observation, k numbers of an action, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludus.core import states
from ludus.core.errors import ConfigError
from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.rollout import RolloutBuffer
from ludus.data.replay.row_layout import RowLayout

Array = NDArray[Any]


class SteppedEnv(Protocol):
    """The attributes read from a vector of envs after a step."""

    obs: Array
    next_obs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    has_ended: bool
    masks: Array | None
    next_masks: Array | None


class OneStep:
    """Pushes each step unchanged; holds the observation that the agent acted on."""

    def __init__(self, num_envs: int, layout: RowLayout, gamma: float) -> None:
        self._obs = np.zeros((num_envs, *layout.obs_shape), dtype=layout.obs_dtype)
        self._discounts = np.full(num_envs, gamma, dtype=np.float32)

    def begin(self, obs_ND: Array, masks_NA: Array | None = None) -> None:
        """Set the observations of the first actions."""
        np.copyto(self._obs, obs_ND)

    def process(self, actions_Nk: Array, env: SteppedEnv, buffer: ReplayBuffer) -> None:
        """Push the env's latest step, made with these actions."""
        discounts = self._discounts
        if env.has_ended:
            discounts = np.where(env.terminated, np.float32(0), discounts)
        buffer.push(self._obs, actions_Nk, env.rewards, discounts, env.next_obs, env.next_masks)
        np.copyto(self._obs, env.obs)

    def forget(self, cut_N: Array, obs_ND: Array, masks_NA: Array | None = None) -> None:
        """Set new first observations where an episode was cut; nothing else is pending."""
        self._obs[cut_N] = obs_ND[cut_N]

    def state_dict(self) -> dict[str, Any]:
        """Return the observations of the next actions."""
        return {"obs": self._obs.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them in place."""
        states.check_keys(state, "obs")
        np.copyto(self._obs, states.like(state, "obs", self._obs, finite=True))


class NStep:
    """Pushes n-step returns; at the end of an episode it pushes the shorter sums.

    All envs step together, so the step started at time t is in slot t % n for all of them.
    """

    def __init__(
        self,
        num_envs: int,
        layout: RowLayout,
        gamma: float,
        n: int,
        clipped: Callable[[Array], Array] | None = None,
    ) -> None:
        """`clipped`, if given, is applied to each reward before it is added to a sum."""
        if n < 1:
            raise ConfigError(f"n_step is {n}; use 1 or more")
        self._n = n
        self._clipped = clipped
        self._obs = np.zeros((num_envs, *layout.obs_shape), dtype=layout.obs_dtype)
        # Slot before env: the steps that all envs started at one time are pushed as one block.
        self._first_obs = np.zeros((n, *self._obs.shape), dtype=layout.obs_dtype)
        self._actions = np.zeros((n, num_envs, layout.action_width), dtype=np.float32)
        self._returns = np.zeros((n, num_envs))
        self._num_pending = np.zeros(num_envs, dtype=np.int64)
        """Number of unpushed last steps of each env; at most n - 1 between steps."""
        self._slot = 0
        self._powers = np.array([gamma**age for age in range(n + 1)])
        ages = (np.arange(n)[:, None] - np.arange(n)) % n
        self._by_slot = self._powers[ages][:, :, None]
        """Discount of a reward in each slot, (n, n, 1): by the current slot, then by slot."""
        self._discounts = np.full(num_envs, gamma**n, dtype=np.float32)
        self._share = np.zeros((n, num_envs))

    def begin(self, obs_ND: Array, masks_NA: Array | None = None) -> None:
        """Set the observations of the first actions; nothing is pending."""
        np.copyto(self._obs, obs_ND)
        self._num_pending[:] = 0

    def process(self, actions_Nk: Array, env: SteppedEnv, buffer: ReplayBuffer) -> None:
        """Add the env's latest step, and push the transitions that it completes."""
        slot = self._slot
        self._first_obs[slot] = self._obs
        self._actions[slot] = actions_Nk
        self._returns[slot] = 0.0
        # Slots that are not pending are added to as well; they are reset to 0 when reused.
        rewards = env.rewards if self._clipped is None else self._clipped(env.rewards)
        np.multiply(self._by_slot[slot], rewards, out=self._share)
        self._returns += self._share
        self._num_pending += 1
        self._slot = oldest = (slot + 1) % self._n
        if not env.has_ended and self._num_pending.min() == self._n:
            parts = self._first_obs[oldest], self._actions[oldest], self._returns[oldest]
            buffer.push(*parts, self._discounts, env.next_obs, env.next_masks)
        else:
            self._push_some(np.flatnonzero(self._num_pending == self._n), oldest, env, buffer)
        np.minimum(self._num_pending, self._n - 1, out=self._num_pending)
        if env.has_ended:
            for index in np.flatnonzero(env.terminated | env.truncated):
                self._push_rest(int(index), env, buffer)
        np.copyto(self._obs, env.obs)

    def _push_some(self, envs: Array, slot: int, env: SteppedEnv, buffer: ReplayBuffer) -> None:
        """Push the step in one slot for the envs in which it is n steps old."""
        if not len(envs):
            return
        discounts = np.where(env.terminated[envs], np.float32(0), self._discounts[envs])
        parts = self._first_obs[slot, envs], self._actions[slot, envs], self._returns[slot, envs]
        masks = None if env.next_masks is None else env.next_masks[envs]
        buffer.push(*parts, discounts, env.next_obs[envs], masks)

    def _push_rest(self, index: int, env: SteppedEnv, buffer: ReplayBuffer) -> None:
        """Push the pending steps of an env whose episode ended, oldest first."""
        count = int(self._num_pending[index])
        self._num_pending[index] = 0
        if count == 0:
            return
        ages = np.arange(count, 0, -1)
        slots = (self._slot - ages) % self._n
        discounts = self._powers[ages] * (not env.terminated[index])
        parts = (
            self._first_obs[slots, index],
            self._actions[slots, index],
            self._returns[slots, index],
        )
        masks = None if env.next_masks is None else env.next_masks[index][None].repeat(count, 0)
        next_obs = env.next_obs[index][None].repeat(count, 0)
        buffer.push(*parts, discounts, next_obs, masks)

    def forget(self, cut_N: Array, obs_ND: Array, masks_NA: Array | None = None) -> None:
        """Drop the pending steps of cut episodes, and set the new first observations there."""
        self._num_pending[cut_N] = 0
        self._obs[cut_N] = obs_ND[cut_N]

    def state_dict(self) -> dict[str, Any]:
        """Return the pending steps."""
        return {"slot": self._slot} | {name: array.copy() for name, array in self._arrays().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them in place."""
        own = self._arrays()
        states.check_keys(state, "slot", *own)
        for name, array in own.items():
            states.like(state, name, array, finite=True)
        states.between("num_pending", state["num_pending"], low=0, high=self._n - 1)
        slot = states.whole(state, "slot", at_most=self._n - 1)
        for name, array in own.items():
            np.copyto(array, state[name])
        self._slot = slot

    def _arrays(self) -> dict[str, Array]:
        return {
            "obs": self._obs,
            "first_obs": self._first_obs,
            "actions": self._actions,
            "returns": self._returns,
            "num_pending": self._num_pending,
        }


class RolloutStep:
    """Adds each step to a rollout; holds the observation and mask that the agent acted on."""

    def __init__(
        self, num_envs: int, obs_shape: tuple[int, ...], obs_dtype: DTypeLike, mask: int
    ) -> None:
        self._obs_ND = np.zeros((num_envs, *obs_shape), dtype=obs_dtype)
        self._masks_NA = np.ones((num_envs, mask), dtype=bool) if mask else None

    def begin(self, obs_ND: Array, masks_NA: Array | None = None) -> None:
        """Set the observations, and masks, of the next actions."""
        np.copyto(self._obs_ND, obs_ND)
        if self._masks_NA is not None and masks_NA is not None:
            np.copyto(self._masks_NA, masks_NA)

    def process(self, actions_Nk: Array, env: SteppedEnv, buffer: RolloutBuffer) -> None:
        """Add the env's latest step, made with these actions."""
        buffer.add(
            self._obs_ND, actions_Nk, env.rewards, env.terminated, env.truncated, env.next_obs,
            self._masks_NA,
        )  # fmt: skip
        self.begin(env.obs, env.masks)

    def forget(self, cut_N: Array, obs_ND: Array, masks_NA: Array | None = None) -> None:
        """Set new first observations, and masks, where an episode was cut."""
        self._obs_ND[cut_N] = obs_ND[cut_N]
        if self._masks_NA is not None and masks_NA is not None:
            self._masks_NA[cut_N] = masks_NA[cut_N]

    def state_dict(self) -> dict[str, Any]:
        return {"obs": self._obs_ND, "masks": self._masks_NA}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "obs", "masks")
        states.like(state, "obs", self._obs_ND, finite=True)
        if self._masks_NA is not None:
            states.like(state, "masks", self._masks_NA)
        elif state["masks"] is not None:
            raise states.StateError("masks", "is there, where this env has none")
        self.begin(state["obs"], state["masks"])
