"""The actions of every env since its last reset, so that an episode can be replayed.

Next to them a mark: a running checksum of every observation and reward since the reset, which shows whether a
replayed episode was the same all the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import DTypeLike

Shown = Sequence[tuple[int, memoryview, memoryview]]
"""Each env's index, and views of its observation and reward of the last step."""


class ActionJournal:
    """One growing array for all envs: a row per step, and for each env the row its episode began at.

    With `is_kept` off it only counts steps, for envs that need no replay.
    """

    def __init__(
        self, num_envs: int, shape: tuple[int, ...], dtype: DTypeLike, *, is_kept: bool
    ) -> None:
        self.is_kept = is_kept
        self._rows = np.zeros((64 if is_kept else 0, num_envs, *shape), dtype)
        self._starts = [0] * num_envs
        self._end = 0
        self._marks = [0] * num_envs

    def begin(self, index: int, obs: np.ndarray) -> None:
        """Drop the actions of one env: a new episode begins with this observation."""
        self._starts[index] = self._end
        if self.is_kept:
            self._marks[index] = first_mark(obs)

    def append(self, actions: np.ndarray, shown: Shown) -> None:
        """Record one action of each env, and the observation and reward after it."""
        if self.is_kept:
            if self._end == len(self._rows):
                self._make_room()
            self._rows[self._end] = actions
            # next_mark, inlined: this is the innermost loop of acting.
            marks = self._marks
            for i, obs, reward in shown:
                marks[i] = crc32(reward, crc32(obs, marks[i]))
        self._end += 1

    @property
    def row(self) -> np.ndarray | None:
        """A row of zeros with the shape and dtype of one step's actions; None if none are kept."""
        return np.zeros(self._rows.shape[1:], self._rows.dtype) if self.is_kept else None

    def length(self, index: int) -> int:
        """Return the number of steps of this env since its reset."""
        return self._end - self._starts[index]

    def state_dict(self) -> dict[str, Any]:
        """Return the lengths of all envs and their actions, one env after the other."""
        lengths = np.array([self.length(i) for i in range(len(self._starts))], np.int64)
        if not self.is_kept:
            return {"lengths": lengths, "actions": None, "marks": None}
        pieces = [self._rows[start : self._end, i] for i, start in enumerate(self._starts)]
        marks = np.array(self._marks, np.int64)
        return {"lengths": lengths, "actions": np.concatenate(pieces), "marks": marks}

    def set_mark(self, index: int, mark: int) -> None:
        """Set the mark of an episode that was replayed."""
        self._marks[index] = mark

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved journal."""
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
        """Return the actions of one env since its reset, one per row."""
        found: np.ndarray = self._rows[self._starts[index] : self._end, index]
        return found

    def _make_room(self) -> None:
        """Drop the rows that no env needs any more, or double the array."""
        first = min(self._starts)
        needed = self._rows[first : self._end]
        if len(needed) > len(self._rows) // 2:
            self._rows = np.zeros((2 * len(self._rows), *self._rows.shape[1:]), self._rows.dtype)
        self._rows[: len(needed)] = needed.copy()
        self._starts = [start - first for start in self._starts]
        self._end -= first


def first_mark(obs: np.ndarray) -> int:
    """Return the mark of an episode that has just begun."""
    return crc32(obs.tobytes())


def next_mark(mark: int, obs: Any, reward: Any) -> int:
    """Return the mark after one more step; both are contiguous, the reward one float64."""
    return crc32(reward, crc32(obs, mark))
