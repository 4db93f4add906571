"""Detect draws from the global generators of Python or NumPy, which no engine replays."""

from __future__ import annotations

import random

import numpy as np

WHY_NOT = "it draws from Python's random or from NumPy as it goes, which would be drawn once only"


class HostRandom:
    """A snapshot of the state of both generators."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state(legacy=True)

    def has_moved(self) -> bool:
        """Return whether anything was drawn since the snapshot."""
        kind, keys, *rest = np.random.get_state(legacy=True)
        was, were, *more = self._numpy
        is_same = (kind, *rest) == (was, *more) and np.array_equal(keys, were)
        return not is_same or random.getstate() != self._python

    def put_back(self) -> None:
        """Restore both generators to the snapshot."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
