"""Restore an env to where it was saved, by its own state or by replaying its episode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from ludus.config.sections import StrictConfig
from ludus.envs.config import AnyEnv, env_name, make_env
from ludus.envs.errors import EnvError
from ludus.envs.slot import EnvSlot, error_line
from ludus.envs.spaces import MultiDiscreteActions, actions_of
from ludus.seeds import derive

# The maximum number of steps before an env is compared: an episode may be shorter.
NUM_LIVED_STEPS = 256
NUM_CHECKED_STEPS = 256
_STEPS_BEFORE_STATE = 32


@dataclass(frozen=True)
class EnvPosition:
    """The saved position of an env, to be reached again when its episode is replayed."""

    obs: np.ndarray
    mask: np.ndarray | None
    mark: int | None
    """The running checksum of all observations and rewards; None in a state of an older ludus."""


def restore_by_replay(
    slot: EnvSlot, episode: int, actions: list[Any], *, stood: EnvPosition
) -> str | int:
    """Replay an episode up to where it was saved; return its mark, or why it is not the same."""
    try:
        found, info, mark = slot.replay(episode, actions)
        if found.tobytes() != stood.obs.tobytes():
            return "playing its actions again led to another observation"
        mask = stood.mask
        if mask is not None and not np.array_equal(slot.mask(info, is_final=False), mask):
            return "playing its actions again led to other allowed actions"
        if stood.mark is not None and mark != stood.mark:
            return "playing its actions again showed other observations or rewards on the way"
    # Whatever the env does here, the run can go on with the next episode.
    except Exception as error:
        problem = error.problem if isinstance(error, EnvError) else error_line(error)
        return f"playing its actions again failed: {problem}"
    return mark


def restore_by_state(slot: EnvSlot, episode: int, state: Mapping[str, Any]) -> str | None:
    """Restore an env from its own state; return why that failed, or None."""
    try:
        slot.set_state(episode, state)
    except Exception as error:
        problem = error.problem if isinstance(error, EnvError) else error_line(error)
        return f"its set_state failed: {problem}"
    return None


def check_repeats(section: StrictConfig, seed: int) -> str | None:
    """Return why an env of this section cannot be restored exactly, or None if it can.

    One env plays an episode and is then reset; a new one repeats its steps: from the reset, or, if the env
    has get_state, from the state of the first. An env that keeps a generator or a count over its lifetime
    differs then, as it would when a run is resumed in a new process.
    """
    envs = [make_env(section), make_env(section)]
    title = env_name(section)
    try:
        first = _Player(envs[0], seed=seed, title=title)
        choose = _chooser(envs[0].action_space, seed=seed)
        first.live(choose)
        has_state = first.slot.can_use_state()
        first.begin(0)
        state: dict[str, Any] = {}
        if has_state:
            for _ in range(_STEPS_BEFORE_STATE):
                first.step(choose(first.mask))
            state = copy.deepcopy(first.slot.get_state())
        episode, actions, seen = first.slot.episode, [], [first.shown]
        for _ in range(NUM_CHECKED_STEPS):
            actions.append(choose(first.mask))
            seen.append(first.step(copy.deepcopy(actions[-1])))
        second = _Player(envs[1], seed=seed, title=title)
        second.begin(0)
        if has_state:
            second.slot.set_state(episode, state)
        elif second.shown != seen[0]:
            return (
                f"two envs {title}, one of which had played before, differ at a reset with one seed"
            )
        for step, action in enumerate(actions, 1):
            if second.step(action) != seen[step]:
                since = "set_state" if has_state else "a reset with the same seed"
                return (
                    f"two envs {title}, one of which had played before, differ {step} equal steps"
                    f" after {since}"
                )
    finally:
        for env in envs:
            env.close()
    return None


Shown = tuple[bytes, bytes, bool, bool, bytes]
Choose = Callable[[np.ndarray | None], Any]


class _Player:
    """One env and its outputs, as bytes and flags that can be compared."""

    shown: Shown

    def __init__(self, env: AnyEnv, *, seed: int, title: str) -> None:
        self.slot = EnvSlot(env, index=0, seed=seed, name="check", title=title)
        self._title = title
        self._num_steps = 0

    def live(self, choose: Choose) -> None:
        """Play until an episode ends, for a bounded number of steps."""
        self.begin(1)
        for _ in range(NUM_LIVED_STEPS):
            self.step(choose(self.mask))
            if self.slot.episode > 1:
                return

    def begin(self, episode: int) -> None:
        """Begin an episode."""
        obs, info = self.slot.begin(episode)
        self._num_steps = 0
        if self.slot.has_masks(info):
            self.slot.expect_masks(actions_of(self.slot.env.action_space, name=self._title))
        self._set_mask(info)
        self.shown = (obs.tobytes(), b"", False, False, self._mask_bytes())

    def step(self, action: object) -> Shown:
        """Take a step, and begin the next episode if one ends; return the outputs to compare."""
        self._num_steps += 1
        obs, reward, terminated, truncated, info = self.slot.try_step(
            action, number=self._num_steps
        )
        if terminated or truncated:
            first, info = self.slot.begin(self.slot.episode + 1)
            obs = np.concatenate([np.ravel(obs), np.ravel(first)])
            self._num_steps = 0
        self._set_mask(info)
        # As bytes, since NaN differs from itself; the run itself reports a NaN.
        reward_bytes = np.float64(reward).tobytes()
        self.shown = (obs.tobytes(), reward_bytes, terminated, truncated, self._mask_bytes())
        return self.shown

    def _mask_bytes(self) -> bytes:
        return b"" if self.mask is None else self.mask.tobytes()

    def _set_mask(self, info: Mapping[str, Any]) -> None:
        try:
            self.mask = self.slot.mask(info, is_final=False) if self.slot.mask_width else None
        except ValueError as error:
            problem = f"action_mask {error}"
            raise self.slot.fault(problem, field="action_mask", step=0) from error


def _chooser(space: spaces.Space[Any], *, seed: int) -> Choose:
    """Return a function that samples an allowed action."""
    # A copy, since the env may sample from its own space.
    own = copy.deepcopy(space)
    own.seed(derive(seed, "check/actions") % 2**31)

    def choose(mask: np.ndarray | None) -> Any:
        if mask is None:
            return own.sample()
        if isinstance(own, spaces.Discrete):
            return own.sample(mask=mask.astype(np.int8))
        # Choice by choice: gymnasium has another form of mask for each composite space.
        action = actions_of(own, name="")
        assert isinstance(action, MultiDiscreteActions)
        choices = np.split(mask, action.mask_starts[1:])
        drawn = [own.np_random.choice(np.flatnonzero(allowed)) for allowed in choices]
        return (np.array(drawn) + action.starts).astype(own.dtype).reshape(own.shape)

    return choose
