"""Several envs stepped together in this process, with arrays that are filled in place.

Shapes: N envs, D numbers of an observation, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ludus.config.sections import StrictConfig
from ludus.envs import saved_states
from ludus.envs.action_codec import ActionCodec
from ludus.envs.config import AnyEnv, env_name, make_env
from ludus.envs.raw_rewards import OwnRewards
from ludus.envs.restore import EnvPosition, restore_by_replay, restore_by_state
from ludus.envs.slot import EnvSlot, as_reward, not_finite, reported_success
from ludus.envs.spaces import ObservationReader, quicken, spec_of


def make_vector_env(
    section: StrictConfig, num_envs: int, seed: int, name: str = "env", *, first_index: int = 0
) -> VectorEnv:
    """Return `num_envs` envs of one section; `name` keeps training and evaluation seeds apart.

    They are numbered from `first_index`, for a slice of a larger number of envs.
    """
    envs: list[AnyEnv] = []
    try:
        for _ in range(num_envs):
            envs.append(make_env(section))
        return VectorEnv(
            envs, seed=seed, name=name, title=env_name(section), first_index=first_index
        )
    except BaseException:
        for env in envs:
            env.close()
        raise


class VectorEnv:
    """N envs that step together; when an episode ends, the next one begins in the same step (autoreset).

    Every array is always the same object and is filled by reset, step and load_state_dict.
    """

    def __init__(
        self,
        envs: Sequence[AnyEnv],
        *,
        seed: int,
        name: str,
        title: str,
        first_index: int = 0,
    ) -> None:
        self.num_envs = num_envs = len(envs)
        self._slots = [
            EnvSlot(env, index=index, seed=seed, name=name, title=title)
            for index, env in enumerate(envs, first_index)
        ]
        self._reader = ObservationReader(envs[0].observation_space, name=title)
        # Only the result of a reset shows whether there are masks.
        has_masks = self._slots[0].has_masks(self._slots[0].begin(0)[1])
        self._has_state = self._slots[0].can_use_state()
        self._slots[0].episode = -1
        self.spec = spec_of(envs[0], name=title, has_masks=has_masks)
        for slot in self._slots:
            if has_masks:
                slot.expect_masks(self.spec.action)

        shape = (num_envs, *self.spec.obs_shape)
        self.obs = np.zeros(shape, self.spec.obs_dtype)
        """The observations to act on now."""
        self.next_obs = np.zeros(shape, self.spec.obs_dtype)
        """The observations after the last step; the final observation where an episode ended."""
        self.rewards = np.zeros(num_envs, np.float64)
        self._own = OwnRewards(envs, self.rewards)
        self.own_rewards = self._own.values
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)
        self.has_ended = False
        """Whether any episode ended in the last step."""
        self.successes = np.full(num_envs, np.nan)
        """1 or 0 where the episode that just ended reported success or failure, NaN elsewhere."""
        self.masks: np.ndarray | None = None
        """The actions allowed at `obs`; None if the env provides no masks."""
        self.next_masks: np.ndarray | None = None
        """The actions allowed at `next_obs`."""
        if has_masks:
            self.masks = np.ones((num_envs, self.spec.action.mask_width), bool)
            self.next_masks = np.ones_like(self.masks)
        self.cut = np.zeros(num_envs, bool)
        """Where a restore had to end the episode and begin the next; the reader clears it."""

        self._open = list(envs)
        self._inexact: list[str] = []
        self._is_float = self.spec.obs_dtype.kind == "f"
        self._is_finite = np.ones(shape if self._is_float else 0, bool)
        self._steps = [(i, slot.env.step) for i, slot in enumerate(self._slots)]
        for env in envs:
            quicken(env.unwrapped.action_space)
        self._form = ActionCodec(envs[0].action_space, self.spec.action, num_envs=num_envs)
        self._journal = self._form.journal(is_kept=not self._has_state)
        views = [(self.next_obs[i : i + 1], self.rewards[i : i + 1]) for i in range(num_envs)]
        self._shown = [(i, obs.data, reward.data) for i, (obs, reward) in enumerate(views)]

    def reset(self, episode: int = 0) -> None:
        """Begin the episode of this number in every env; equal numbers begin alike."""
        for i in range(self.num_envs):
            self._begin(i, episode)
        self._clear_last_step()

    def step(self, actions: np.ndarray) -> None:
        """Take one action in every env, given in the env's own units.

        Raises EnvError, before `obs` has changed, if an env breaks its contract.
        """
        assert self._slots[0].episode >= 0, "reset() comes before the first step"
        actions = self._form.checked(actions, name=self.spec.name)
        given = self._form.for_envs(actions)
        if self.has_ended:
            self._clear_last_step()
        ended = self._step_all(given)
        self._own.read()
        np.copyto(self.obs, self.next_obs)
        if self.masks is not None:
            np.copyto(self.masks, self.next_masks)  # type: ignore[arg-type]
        self._journal.append(actions, self._shown)
        if ended:
            self.has_ended = True
            for i, info in ended:
                self.successes[i] = reported_success(info)
                self._begin(i, self._slots[i].episode + 1)

    def _step_all(self, given: Sequence[Any]) -> list[tuple[int, Mapping[str, Any]]]:
        """Step every env and fill the arrays; return the envs whose episode ended, with its info.

        This is the innermost loop of acting: the common case takes the fast path, and mistakes are diagnosed
        only once something has failed.
        """
        next_obs, rewards, next_masks = self.next_obs, self.rewards, self.next_masks
        dtype, shape, array = self._reader.plain_dtype, self._reader.shape, np.ndarray
        ended: list[tuple[int, Mapping[str, Any]]] = []
        total, i, result = 0.0, 0, None
        try:
            for i, step in self._steps:
                result = None
                result = step(given[i])
                obs, reward, terminated, truncated, info = result
                # The row is a copy: an env may reuse its own array.
                if obs.__class__ is array and obs.dtype is dtype and obs.shape == shape:
                    next_obs[i] = obs
                else:
                    next_obs[i] = self._reader.read(obs)
                if reward.__class__ is not float:
                    reward = as_reward(reward)
                rewards[i] = reward
                total += reward
                is_end = False
                if terminated is not False or truncated is not False:
                    is_end = self._note_end(i, terminated, truncated, info)
                    if is_end:
                        ended.append((i, info))
                if next_masks is not None:
                    next_masks[i] = self._slots[i].mask(info, is_final=is_end)
        except Exception as error:
            self._clear_last_step()
            number = self._journal.length(i) + 1
            raise self._slots[i].explain(result, error, step=number, action=given[i]) from error
        # Searching for a zero byte is several times faster than all() on so small an array. Rewards that
        # overflow only when summed pass the check.
        if self._is_float:
            np.isfinite(next_obs, self._is_finite)
        if not math.isfinite(total) or b"\0" in self._is_finite.tobytes():
            self._check_finite(given)
        return ended

    def _note_end(self, index: int, terminated: object, truncated: object, info: object) -> bool:
        """Record how an episode ended; return whether it did. Raise ValueError if the flags are invalid."""
        for flag in (terminated, truncated):
            if flag.__class__ is not bool and flag.__class__ is not np.bool_:
                raise ValueError("not a bool")
        if not isinstance(info, Mapping):
            raise ValueError("info is no dict")
        self.terminated[index], self.truncated[index] = terminated, truncated
        return bool(terminated or truncated)

    def _begin(self, index: int, episode: int) -> None:
        """Begin an episode of one env and set its first observation."""
        slot = self._slots[index]
        obs, info = slot.begin(episode)
        self._journal.begin(index, obs)
        if self.masks is not None:
            try:
                self.masks[index] = slot.mask(info, is_final=False)
            except ValueError as error:
                raise slot.fault(f"action_mask {error}", field="action_mask", step=0) from error
        self.obs[index] = obs

    def _clear_last_step(self) -> None:
        self.has_ended = False
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.successes.fill(np.nan)

    # Errors

    def _check_finite(self, given: Sequence[Any]) -> None:
        """Raise EnvError for the first env whose observation or reward is not finite."""
        for i, slot in enumerate(self._slots):
            problem, field = None, "observation"
            if self._is_float and not np.isfinite(self.next_obs[i]).all():
                problem = not_finite(self.next_obs[i])
            elif not math.isfinite(self.rewards[i]):
                problem, field = f"reward is {self.rewards[i]}; it must be finite", "reward"
            if problem is not None:
                self._clear_last_step()
                step = self._journal.length(i) + 1
                raise slot.fault(problem, field=field, step=step, action=given[i])

    # Saving and restoring

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every env: its episode, and its own state or its actions since the reset."""
        has_begun = self._slots[0].episode >= 0
        states = [slot.get_state() for slot in self._slots] if self._has_state and has_begun else []
        return {
            "episodes": np.array([slot.episode for slot in self._slots], np.int64),
            "journal": self._journal.state_dict(),
            "states": states,
            "obs": self.obs.copy(),
            "masks": None if self.masks is None else self.masks.copy(),
            "cut": self.cut.copy(),
            "inexact": list(self._inexact),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore every env to where it was saved.

        An env that cannot be restored begins its next episode: `cut` is true for it, and inexact_because says
        why.
        """
        saved_states.check(state, self, actions=self._journal.row, name=self.spec.name)
        episodes = state["episodes"].tolist()
        self._journal.load_state_dict(state["journal"])
        np.copyto(self.obs, state["obs"])
        np.copyto(self.next_obs, state["obs"])
        np.copyto(self.cut, state["cut"])
        if self.masks is not None:
            np.copyto(self.masks, state["masks"])
        self._inexact = list(state["inexact"])
        self._clear_last_step()
        lost = []
        for i, episode in enumerate(episodes):
            self._slots[i].episode = episode
            reason = self._restore(i, state) if episode >= 0 else None
            if reason is not None:
                lost.append(f"env {self._slots[i].index}, episode {episode}: {reason}")
                self.cut[i] = True
                self._begin(i, episode + 1)
        self._own.read()  # the rewards of a replay have been counted
        if lost:
            self._inexact.append(
                f"{self.spec.name}: {len(lost)} of {self.num_envs} envs could not be restored and "
                f"began their next episode; {lost[0]}"
            )

    def _restore(self, index: int, state: Mapping[str, Any]) -> str | None:
        slot = self._slots[index]
        if self._has_state:
            return restore_by_state(slot, slot.episode, state["states"][index])
        marks = state["journal"].get("marks")
        stood = EnvPosition(
            self.obs[index],
            None if self.masks is None else self.masks[index],
            None if marks is None else int(marks[index]),
        )
        given = self._form.for_envs(self._journal.actions(index))
        found = restore_by_replay(slot, slot.episode, given, stood=stood)
        if isinstance(found, str):
            return found
        self._journal.set_mark(index, found)
        return None

    def inexact_because(self) -> list[str]:
        """Return why this run is not exact: an episode that could not be restored."""
        return list(self._inexact)

    def close(self) -> None:
        """Close every env; calling it twice does no harm."""
        envs, self._open = self._open, []
        for env in envs:
            env.close()
