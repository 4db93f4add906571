"""Notice that Python's or NumPy's global generator was drawn from, which no engine repeats."""

from __future__ import annotations

import random

import numpy as np

WHY_NOT = "it draws from Python's random or from NumPy as it goes, which would be drawn once only"


class HostRandom:
    """The state of both generators when this was made."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state(legacy=True)

    def has_moved(self) -> bool:
        """Return whether anything was drawn since."""
        kind, keys, *rest = np.random.get_state(legacy=True)
        was, were, *more = self._numpy
        is_same = (kind, *rest) == (was, *more) and np.array_equal(keys, were)
        return not is_same or random.getstate() != self._python

    def put_back(self) -> None:
        """Let it be as if nothing had been drawn since."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
