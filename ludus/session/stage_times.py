"""Wall-clock times of stages, measured only where a config asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import Run

Work = Callable[[Run], Mapping[str, Any] | None]


class StageTimes:
    """Adds up the seconds of stages since the last record; they promise nothing, so they are no state."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def timed(self, name: str, work: Work) -> Work:
        """Return the work of a stage, measured under this name."""

        def measured(run: Run) -> Mapping[str, Any] | None:
            started = time.perf_counter()
            try:
                return work(run)
            finally:
                elapsed = time.perf_counter() - started
                self._seconds[name] = self._seconds.get(name, 0.0) + elapsed
                self._counts[name] = self._counts.get(name, 0) + 1

        return measured

    def take(self) -> dict[str, float]:
        """Return the mean milliseconds of each since the last call, and begin anew."""
        found = {
            f"{name}_ms": 1000 * seconds / self._counts[name]
            for name, seconds in self._seconds.items()
        }
        self._seconds, self._counts = {}, {}
        return found
