"""The actions of every env since its last reset, so that an episode can be played again."""

from __future__ import annotations

from typing import Any

import numpy as np


class ActionJournal:
    """One growing array for all envs: a row a step, and for each env the row its episode began at.

    With `is_kept` off it only counts steps, for envs that need no replay.
    """

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: Any, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._rows = np.zeros((64 if is_kept else 0, num_envs, *shape), dtype)
        self._starts = [0] * num_envs
        self._end = 0

    def begin(self, index: int) -> None:
        """Forget the actions of one env: a new episode begins."""
        self._starts[index] = self._end

    def append(self, actions: np.ndarray) -> None:
        """Note one action of each env."""
        if self.is_kept:
            if self._end == len(self._rows):
                self._make_room()
            self._rows[self._end] = actions
        self._end += 1

    def length(self, index: int) -> int:
        """Return how many steps this env has made since its reset."""
        return self._end - self._starts[index]

    def state_dict(self) -> dict[str, Any]:
        """Return the lengths of all envs and their actions, one env after the other."""
        lengths = np.array([self.length(i) for i in range(len(self._starts))], np.int64)
        if not self.is_kept:
            return {"lengths": lengths, "actions": None}
        pieces = [self._rows[start : self._end, i] for i, start in enumerate(self._starts)]
        return {"lengths": lengths, "actions": np.concatenate(pieces)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what was saved."""
        lengths = state["lengths"].tolist()
        self._end = max(lengths)
        self._starts = [self._end - length for length in lengths]
        if not self.is_kept:
            return
        if self._end > len(self._rows):
            self._rows = np.zeros((2 * self._end, *self._rows.shape[1:]), self._rows.dtype)
        first = 0
        for i, length in enumerate(lengths):
            self._rows[self._starts[i] : self._end, i] = state["actions"][first : first + length]
            first += length

    def actions(self, index: int) -> np.ndarray:
        """Return the actions of one env since its reset, one a row."""
        found: np.ndarray = self._rows[self._starts[index] : self._end, index]
        return found

    def _make_room(self) -> None:
        """Drop what no env needs any more, or double the array."""
        first = min(self._starts)
        needed = self._rows[first : self._end]
        if len(needed) > len(self._rows) // 2:
            self._rows = np.zeros((2 * len(self._rows), *self._rows.shape[1:]), self._rows.dtype)
        self._rows[: len(needed)] = needed.copy()
        self._starts = [start - first for start in self._starts]
        self._end -= first
