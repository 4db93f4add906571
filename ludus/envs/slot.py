"""One env of many: it begins episodes by number, checks the env's results, and restores it."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np

from ludus.envs.config import AnyEnv
from ludus.envs.errors import EnvError
from ludus.envs.journal import first_mark, next_mark
from ludus.envs.raw_rewards import wrappers_of
from ludus.envs.spaces import Actions, ObservationReader
from ludus.seeds import derive
from ludus.store import codec


@runtime_checkable
class EnvState(Protocol):
    """The optional methods of an env that can be restored without replaying its episode.

    The state is complete, generators included, in numbers, text, lists, dicts and arrays.
    """

    def get_state(self) -> Any:
        """Return the state, as a copy."""

    def set_state(self, state: object) -> None:
        """Restore a state; called after a reset."""


# Wrappers that keep nothing between steps; your own wrapper declares it with `is_stateless = True`. Around
# any other the inner env's state is not complete, so the episode is replayed.
_STATELESS = {
    gymnasium.wrappers.FlattenObservation,
    gymnasium.wrappers.GrayscaleObservation,
    gymnasium.wrappers.ResizeObservation,
    gymnasium.wrappers.RescaleAction,
    gymnasium.wrappers.ClipAction,
    gymnasium.wrappers.OrderEnforcing,
    # Its step count is restored with the env's state.
    gymnasium.wrappers.TimeLimit,
}


class EnvSlot:
    """An env, its index among the others and the number of its episode.

    Episode e begins with reset(seed=derive(seed, "<name>/<index>", e) % 2**31), so it does not depend on what
    happened before. The modulus is for the many envs that keep their seed in a signed 32-bit integer.
    """

    def __init__(self, env: AnyEnv, *, index: int, seed: int, name: str, title: str) -> None:
        self.env, self.index, self.title = env, index, title
        self.episode = -1
        """-1 before the first reset."""
        self.mask_width = 0
        """The number of entries of a mask; 0 if the env has none."""
        self._mask_starts: tuple[int, ...] = ()
        self._seed, self._name = seed, f"{name}/{index}"
        self._reader = ObservationReader(env.observation_space, name=title)

    def begin(self, episode: int) -> tuple[np.ndarray, Mapping[str, Any]]:
        """Begin an episode; return its first observation, a copy, and the env's info."""
        self.episode = episode
        seed = derive(self._seed, self._name, episode) % 2**31
        try:
            result: Any = self.env.reset(seed=seed)
        except Exception as error:
            raise self.fault(f"reset raised {error_line(error)}", field="reset", step=0) from error
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
            problem = f"reset returned {_shape_of(result)}, not (observation, info)"
            raise self.fault(problem, field="reset", step=0)
        try:
            obs = self._reader.read(result[0])
        except ValueError as error:
            raise self.fault(f"observation {error}", field="observation", step=0) from error
        if not np.isfinite(obs).all():
            raise self.fault(not_finite(obs), field="observation", step=0)
        return obs, result[1]

    def fault(self, problem: str, *, field: str, step: int, action: object = 0) -> EnvError:
        """Return the error that names this env, its episode and the step.

        If the action was not finite it says so too, since that is the likely cause.
        """
        given = np.asarray(action)
        if not np.isfinite(given).all():
            problem += f" (the action was {given.tolist()})"
        place = {"index": self.index, "episode": self.episode, "step": step}
        return EnvError(problem, env=self.title, field=field, **place)

    def explain(self, result: object, error: Exception, *, step: int, action: object) -> EnvError:
        """Return the error for a failed step; `result` is None if the env itself raised."""
        field, problem = "step", f"step raised {error_line(error)}"
        if result is not None:
            unread = f"could not be read: {error_line(error)}"
            field, problem = self._wrong_in(result) or ("step", unread)
        return self.fault(problem, field=field, step=step, action=action)

    def _wrong_in(self, result: object) -> tuple[str, str] | None:
        """Return the first invalid field of a step's result, and what is wrong with it."""
        if not isinstance(result, tuple) or len(result) != 5:
            shape = _shape_of(result)
            hint = "; that is the old interface of gym" if shape == "4 values" else ""
            wanted = "(observation, reward, terminated, truncated, info)"
            return "step", f"step returned {shape}, not {wanted}{hint}"
        obs, reward, terminated, truncated, info = result
        try:
            self._reader.read(obs)
        except ValueError as error:
            return "observation", f"observation {error}"
        try:
            as_reward(reward)
        except ValueError as error:
            return "reward", f"reward {error}"
        for field, value in [("terminated", terminated), ("truncated", truncated)]:
            if not isinstance(value, bool | np.bool_):
                return field, f"{field} is {value!r}, a {type(value).__name__} and not a bool"
        if not isinstance(info, Mapping):
            return "info", f"info is a {type(info).__name__}, not a dict"
        try:
            if self.mask_width:
                self.mask(info, is_final=bool(terminated or truncated))
        except ValueError as error:
            return "action_mask", f"action_mask {error}"
        return None

    # Masks

    def expect_masks(self, action: Actions) -> None:
        """Read masks for these actions from now on."""
        self.mask_width, self._mask_starts = action.mask_width, action.mask_starts

    def has_masks(self, info: Mapping[str, Any]) -> bool:
        """Return whether this env provides action masks."""
        return "action_mask" in info or hasattr(self.env.unwrapped, "action_masks")

    def mask(self, info: Mapping[str, Any], *, is_final: bool) -> np.ndarray:
        """Return the flat mask of allowed actions; raise ValueError, with the reason, if it is invalid.

        After the last step of an episode the env need not provide one: then all actions are allowed.
        """
        raw = info.get("action_mask")
        if raw is None:
            offered = getattr(self.env.unwrapped, "action_masks", None)
            raw = None if offered is None else offered()
        if raw is None and is_final:
            return np.ones(self.mask_width, bool)
        if raw is None:
            raise ValueError("is missing from info, where the first reset had it")
        if isinstance(raw, np.ndarray) and raw.dtype == bool and raw.shape == (self.mask_width,):
            mask = raw
        else:
            mask = self._read_mask(raw)
        if len(self._mask_starts) < 2:
            is_open = bool(mask.any())
        else:
            is_open = bool(np.logical_or.reduceat(mask, self._mask_starts).all())
        if not is_open:
            if not is_final:
                raise ValueError(self._closed(mask))
            return np.ones(self.mask_width, bool)
        return mask

    def _closed(self, mask: np.ndarray) -> str:
        """Return the problem with a mask that leaves nothing to choose."""
        if not mask.any():
            return "allows no action"
        shut = np.flatnonzero(~np.logical_or.reduceat(mask, self._mask_starts))[0]
        return f"allows nothing for choice {shut} of {len(self._mask_starts)}; allow one of each"

    def _read_mask(self, raw: object) -> np.ndarray:
        """Return a mask given as numbers, or as one mask for each choice."""
        pieces = raw if isinstance(raw, tuple | list) else [raw]
        mask = np.concatenate([np.ravel(np.asarray(piece)) for piece in pieces])
        if mask.dtype.kind not in "biu":
            raise ValueError(f"is of {mask.dtype}, not of bools")
        if mask.shape != (self.mask_width,):
            width, choices = self.mask_width, len(self._mask_starts)
            of = (
                f" of {choices} choices, the masks of which follow each other"
                if choices > 1
                else ""
            )
            raise ValueError(f"has {mask.size} entries, the env has {width} actions{of}")
        return mask.astype(bool)

    # Restoring

    def can_use_state(self) -> bool:
        """Return whether the env can be restored by its own state, wrappers included.

        Called after a reset: it tries the methods, since an env may have others of the same names.
        """
        env: Any = self.env
        for one in wrappers_of(self.env):
            if type(one) not in _STATELESS and not getattr(one, "is_stateless", False):
                return False
            env = one.env
        if not isinstance(env, EnvState):
            return False
        try:
            state = env.get_state()
            codec.encode(state)
            env.set_state(state)
        except Exception:
            return False
        return True

    def get_state(self) -> dict[str, Any]:
        """Return the env's own state and the step counts of its time limits."""
        inner: Any = self.env.unwrapped
        counts = [limit._elapsed_steps for limit in _time_limits(self.env)]
        return {"env": inner.get_state(), "elapsed": counts}

    def set_state(self, episode: int, state: Mapping[str, Any]) -> None:
        """Restore a state of this episode."""
        self.begin(episode)
        inner: Any = self.env.unwrapped
        inner.set_state(state["env"])
        for limit, count in zip(_time_limits(self.env), state["elapsed"], strict=True):
            limit._elapsed_steps = count

    def replay(self, episode: int, actions: list[Any]) -> tuple[np.ndarray, Mapping[str, Any], int]:
        """Begin an episode and repeat these steps; return the last observation and info, and the mark.

        Raise ValueError, with the reason, if the episode ends early.
        """
        obs, info = self.begin(episode)
        mark = first_mark(obs)
        for step, action in enumerate(actions, 1):
            raw, reward, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                raise ValueError(f"it ended at step {step} of {len(actions)}")
            # Read before the env is stepped again, which may overwrite it.
            obs = self._reader.read(raw)
            mark = next_mark(mark, obs.tobytes(), np.float64(as_reward(reward)))
        return obs, info, mark

    def try_step(
        self, action: object, *, number: int
    ) -> tuple[np.ndarray, float, bool, bool, Mapping[str, Any]]:
        """Take one step; return the observation, the reward, terminated, truncated, and info."""
        result = None
        try:
            result = self.env.step(action)
            raw, reward, terminated, truncated, info = result
            obs = self._reader.read(raw)
            return obs, as_reward(reward), bool(terminated), bool(truncated), info
        except Exception as error:
            raise self.explain(result, error, step=number, action=action) from error


def as_reward(reward: object) -> float:
    """Return the reward as a float; raise ValueError if it is not a number."""
    if isinstance(reward, np.ndarray) and reward.shape == () and reward.dtype.kind in "fiu":
        return float(reward)
    if isinstance(reward, bool | np.bool_) or not isinstance(
        reward, int | float | np.integer | np.floating
    ):
        raise ValueError(f"is a {type(reward).__name__}, not a number")
    return float(reward)


def not_finite(obs: np.ndarray) -> str:
    """Return a sentence that names the first non-finite number of an observation."""
    place = tuple(np.argwhere(~np.isfinite(obs))[0].tolist())
    shown = place[0] if len(place) == 1 else place
    return f"observation is {obs[place]} at {shown}; every number must be finite in float32"


def reported_success(info: Mapping[str, Any]) -> float:
    """Return 1 or 0 if info reports success or failure, else NaN."""
    said = info.get("is_success", info.get("success"))
    return math.nan if said is None else float(bool(said))


def error_line(error: Exception) -> str:
    """Return an exception in one line, with the place that raised it."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def _shape_of(result: object) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"


def _time_limits(env: object) -> list[Any]:
    """Return the time limits around an env, the outermost first."""
    return [one for one in wrappers_of(env) if isinstance(one, gymnasium.wrappers.TimeLimit)]
