"""One evaluation env: it starts an episode by its number, once, and plays it to the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.action_codec import ActionCodec
from ludus.envs.config import AnyEnv, env_name, make_env
from ludus.envs.slot import EnvSlot, as_reward, not_finite, reported_success
from ludus.envs.spaces import EnvSpec, ObservationReader, quicken, spec_of


class EvaluationEnv:
    """Plays one episode after another, each with one reset; the env's returns are checked.

    `stream` names the seeds of the episodes: episode i begins with derive(seed, "<stream>/0", i).
    """

    def __init__(self, env: AnyEnv, *, seed: int, stream: str, title: str) -> None:
        self.env = env
        self.obs: NDArray[Any] = np.zeros(0)
        """The current observation."""
        self.mask: NDArray[np.bool_] | None = None
        """The current action mask; None where the env has none."""
        self.total_return, self.length = 0.0, 0
        self.success = float("nan")
        """1 or 0 if the last step reported is_success, else NaN."""
        self._slot = EnvSlot(env, index=0, seed=seed, name=stream, title=title)
        self._reader = ObservationReader(env.observation_space, name=title)
        quicken(env.unwrapped.action_space)
        self._title = title
        self._has_begun = False

    def begin(self, episode: int) -> None:
        """Start the episode of this number; equal numbers have equal seeds."""
        self.obs, info = self._slot.begin(episode)
        if not self._has_begun:
            self._look_at(info)
        self.total_return, self.length = 0.0, 0
        self._set_mask(info, is_final=False)

    def _look_at(self, info: Mapping[str, Any]) -> None:
        """Read the action space and the mask: whether there are masks is known only after a reset."""
        has_masks = self._slot.has_masks(info)
        self.spec: EnvSpec = spec_of(self.env, name=self._title, has_masks=has_masks)
        if has_masks:
            self._slot.expect_masks(self.spec.action)
        self._form = ActionCodec(self.env.action_space, self.spec.action, num_envs=1)
        self._has_begun = True

    def step(self, action: NDArray[Any]) -> bool:
        """Take this action, one row of the policy's output; return whether the episode has ended."""
        self.length += 1
        (given,) = self._form.for_envs(self._form.checked(action, name=self._title))
        result = None
        try:
            result = self.env.step(given)
            obs, reward, terminated, truncated, info = result
            self.obs, gained = self._reader.read(obs), as_reward(reward)
            for flag in (terminated, truncated):
                if not isinstance(flag, bool | np.bool_):
                    raise ValueError("not a bool")
            is_end = bool(terminated or truncated)
            self._set_mask(info, is_final=is_end)
        except LudusError:
            raise
        except Exception as error:
            raise self._slot.explain(result, error, step=self.length, action=given) from error
        if not np.isfinite(gained):
            problem = f"reward is {gained}; it must be finite"
            raise self._slot.fault(problem, field="reward", step=self.length, action=given)
        if not np.isfinite(self.obs).all():
            problem = not_finite(self.obs)
            raise self._slot.fault(problem, field="observation", step=self.length, action=given)
        self.total_return += gained
        self.success = reported_success(info) if is_end else float("nan")
        return is_end

    def _set_mask(self, info: Mapping[str, Any], *, is_final: bool) -> None:
        if self._slot.mask_width:
            try:
                self.mask = self._slot.mask(info, is_final=is_final)
            except ValueError as error:
                problem, step = f"action_mask {error}", self.length
                raise self._slot.fault(problem, field="action_mask", step=step) from error


def check_same_spaces(section: StrictConfig, trained: EnvSpec, *, key: str) -> None:
    """Raise ConfigError unless this section's env has the spaces that the policy was trained with."""
    env = EvaluationEnv(make_env(section), seed=0, stream="check", title=env_name(section))
    try:
        env.begin(0)
    finally:
        env.env.close()
    for what, own, theirs in (
        ("observations", _shown(env.spec), _shown(trained)),
        ("actions", repr(env.spec.action), repr(trained.action)),
        ("action masks", str(env.spec.has_masks), str(trained.has_masks)),
    ):
        if own != theirs:
            raise ConfigError(
                f"'{key}' has other {what} than the training env ({own}, not {theirs}), so the agent"
                " cannot act there; give it the wrappers that the training env has"
            )


def _shown(spec: EnvSpec) -> str:
    return f"{spec.obs_dtype} of {spec.obs_shape}"
