"""Check the actions of an agent and convert them to the form an env takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from ludus.core.errors import LudusError
from ludus.envs.journal import ActionJournal
from ludus.envs.spaces import Actions, BoxActions, DiscreteActions


class ActionCodec:
    """The shape and dtype of actions, for the agent (N, k) or (N,), and for one env."""

    def __init__(self, space: spaces.Space[Any], action: Actions, *, num_envs: int) -> None:
        self._env_shape = tuple(space.shape or ())
        self._env_dtype = space.dtype
        self._is_discrete = isinstance(action, DiscreteActions)
        self._is_box = isinstance(action, BoxActions)
        self._shape: tuple[int, ...] = (num_envs,)
        if not self._is_discrete:
            self._shape = (num_envs, math.prod(self._env_shape))
        self._kept_dtype: Any = np.float32 if self._is_box else np.int64
        if isinstance(action, DiscreteActions) and (
            action.start >= -(2**15) and action.start + action.n <= 2**15
        ):
            # Long episodes of many envs are kept whole, so a quarter of the bytes matters.
            self._kept_dtype = np.int16

    def checked(self, actions: np.ndarray, *, name: str) -> np.ndarray:
        """Return one action for each env, exactly as the journal keeps them."""
        check_actions(actions, self._shape, is_box=self._is_box, name=name)
        return actions.astype(np.float32, copy=False) if self._is_box else actions

    def for_envs(self, actions: np.ndarray) -> list[Any]:
        """Return actions, one per row, in the form an env takes; each is a copy that it may keep."""
        if self._is_discrete:
            plain: list[Any] = actions.tolist()
            return plain
        if not self._env_shape:
            # Arrays of shape () as in the space, where list would give scalars.
            return [np.array(number, self._env_dtype) for number in actions[:, 0]]
        return list(actions.astype(self._env_dtype).reshape(len(actions), *self._env_shape))

    def journal(self, *, is_kept: bool) -> ActionJournal:
        """Return an empty journal for such actions."""
        num_envs, *width = self._shape
        return ActionJournal(num_envs, tuple(width), self._kept_dtype, is_kept=is_kept)


def check_actions(actions: np.ndarray, shape: tuple[int, ...], *, is_box: bool, name: str) -> None:
    """Raise LudusError unless there is one action for each env, of the right dtype."""
    if actions.shape != shape or actions.dtype.kind not in ("f" if is_box else "iu"):
        wanted = f"{shape} {'floats' if is_box else 'whole numbers'}"
        raise LudusError(f"{name}: actions are {actions.shape} of {actions.dtype}, wanted {wanted}")
