"""Measure how fast the counters of a run grow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

_WINDOW, _APART = 10.0, 0.5
"""Seconds over which a speed is measured, and between two of the counts that are kept."""
_RATED = ("opt_steps", "examples", "tokens")


class Speedometer:
    """Measures counts a second over the last ten seconds; for a run that has ended, over all of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: deque[tuple[float, Mapping[str, int]]] = deque()
        self._first: tuple[float, Mapping[str, int]] | None = None

    def begin(self, counters: Mapping[str, int]) -> None:
        """Measure from now on."""
        self._first = self._clock(), dict(counters)
        self._counts = deque([self._first])

    def read(self, counters: Mapping[str, int], *, is_over: bool = False) -> dict[str, float]:
        """Return how much each counter of steps, examples or tokens grows in a second, if it does."""
        if self._first is None:
            return {}
        now = self._clock()
        then, before = self._first if is_over else self._counts[0]
        if now - self._counts[-1][0] >= _APART and not is_over:
            # A counter that moves in leaps is measured from one to the next, however far apart.
            if counters != self._counts[-1][1]:
                self._counts.append((now, dict(counters)))
            while len(self._counts) > 2 and self._counts[1][0] < now - _WINDOW:
                self._counts.popleft()
        grown = {name: count - before.get(name, 0) for name, count in counters.items()}
        if now <= then:
            return {}
        return {
            name: count / (now - then)
            for name, count in grown.items()
            if count > 0 and (name.endswith("_steps") or name in _RATED)
        }


def main_speed(speeds: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the speed that says most: of the steps of envs or games, else of optimisation."""
    steps = [name for name in speeds if name.endswith("_steps") and name != "opt_steps"]
    names = [*steps, *(name for name in _RATED if name in speeds)]
    return (names[0], speeds[names[0]]) if names else None
