"""Bring an env back to where it was saved, by its own state or by playing its episode again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from ludus.core.errors import EnvError
from ludus.rl.env_config import AnyEnv, env_name, make_env
from ludus.rl.env_slot import EnvSlot, told
from ludus.rl.spaces import actions_of
from ludus.run.seeds import derive
from ludus.strict_config import StrictConfig

NUM_CHECKED_STEPS = 64


def restore_by_replay(
    slot: EnvSlot,
    episode: int,
    actions: list[Any],
    *,
    obs: np.ndarray,
    mask: np.ndarray | None,
) -> str | None:
    """Play an episode again up to where it was saved; return why it is not the same, or None."""
    try:
        found, info = slot.replay(episode, actions)
        if found.tobytes() != obs.tobytes():
            return "playing its actions again led to another observation"
        if mask is not None and not np.array_equal(slot.mask(info, is_final=False), mask):
            return "playing its actions again led to other allowed actions"
    # Whatever the env does here, the run can go on with the next episode.
    except Exception as error:
        problem = error.problem if isinstance(error, EnvError) else told(error)
        return f"playing its actions again failed: {problem}"
    return None


def restore_by_state(slot: EnvSlot, episode: int, state: Any) -> str | None:
    """Give an env its own state back; return why that failed, or None."""
    try:
        slot.set_state(episode, state)
    except Exception as error:
        problem = error.problem if isinstance(error, EnvError) else told(error)
        return f"its set_state failed: {problem}"
    return None


def check_repeats(section: StrictConfig, seed: int) -> str | None:
    """Return why an env of this section cannot be restored exactly, or None if it can.

    One fresh env makes random steps, a second makes them again: from the beginning, or, where the
    env hands out its state, from the state of the first half way.
    """
    envs = [make_env(section), make_env(section)]
    title = env_name(section)
    try:
        first, second = (_Player(env, seed=seed, title=title) for env in envs)
        has_state = first.slot.can_use_state()
        choose = _chooser(envs[0].action_space, seed=seed)
        start, episode, actions, seen = 0, 0, [], [first.shown]
        state: dict[str, Any] = {}
        for step in range(NUM_CHECKED_STEPS):
            if has_state and step == NUM_CHECKED_STEPS // 2:
                state = copy.deepcopy(first.slot.get_state())
                start, episode = step, first.slot.episode
            actions.append(choose(first.mask))
            seen.append(first.step(copy.deepcopy(actions[-1])))
        if has_state:
            second.slot.set_state(episode, state)
        elif second.shown != seen[0]:
            return f"two fresh envs {title}, reset with one seed, differ at once"
        for step in range(start, NUM_CHECKED_STEPS):
            if second.step(actions[step]) != seen[step + 1]:
                since = "set_state" if has_state else "a reset with the same seed"
                return f"two envs {title} differ {step + 1 - start} equal steps after {since}"
    finally:
        for env in envs:
            env.close()
    return None


class _Player:
    """One env and what it shows, as bytes and numbers that can be compared."""

    def __init__(self, env: AnyEnv, *, seed: int, title: str) -> None:
        self.slot = EnvSlot(env, index=0, seed=seed, name="check", title=title)
        self._num_steps = 0
        obs, info = self.slot.begin(0)
        if self.slot.has_masks(info):
            self.slot.mask_width = actions_of(env.action_space, name=title).mask_width
        self.shown: tuple[bytes, bytes, bool] = (obs.tobytes(), b"", False)
        self._set_mask(info)

    def step(self, action: Any) -> tuple[bytes, bytes, bool]:
        """Make a step, and begin the next episode where one ends; return what is to be compared."""
        self._num_steps += 1
        obs, reward, is_end, info = self.slot.try_step(action, number=self._num_steps)
        # As bytes, for a NaN differs from itself; that it must not be there is told by the run.
        self.shown = (obs.tobytes(), np.float64(reward).tobytes(), is_end)
        if is_end:
            _, info = self.slot.begin(self.slot.episode + 1)
            self._num_steps = 0
        self._set_mask(info)
        return self.shown

    def _set_mask(self, info: Mapping[str, Any]) -> None:
        try:
            self.mask = self.slot.mask(info, is_final=False) if self.slot.mask_width else None
        except ValueError as error:
            problem = f"action_mask {error}"
            raise self.slot.fault(problem, field="action_mask", step=0) from error


def _chooser(space: spaces.Space[Any], *, seed: int) -> Callable[[np.ndarray | None], Any]:
    """Return a function that draws an allowed action."""
    # A copy, for the env may draw from its own space.
    own = copy.deepcopy(space)
    own.seed(derive(seed, "check/actions") % 2**32)

    def choose(mask: np.ndarray | None) -> Any:
        if mask is None:
            return own.sample()
        if isinstance(own, spaces.MultiDiscrete):
            ends = np.cumsum(own.nvec)[:-1]
            return own.sample(mask=tuple(np.split(mask.astype(np.int8), ends)))
        return own.sample(mask=mask.astype(np.int8))

    return choose
