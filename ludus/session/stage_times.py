"""Time the stages of a run, if its config asks for it: by the clock, or on a GPU by CUDA events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ludus.core import Run

Work = Callable[[Run], Mapping[str, Any] | None]
_MAX_PENDING = 10_000
"""Maximum number of GPU stages whose times are unread; beyond it, some stages are not measured."""


class StageTimes:
    """Adds up the seconds of stages since the last record; they are not reproducible, so they are not state.

    A stage on a GPU returns while the GPU is still working, so it is timed by CUDA events. They are read
    when the times are taken, so the stages themselves never wait.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        """Time work on the host or, given a CUDA device, on that device."""
        self._is_cuda = device is not None and device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._pending: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()

    def timed(self, name: str, work: Work) -> Work:
        """Wrap the work of a stage to measure it under this name."""

        def measured(run: Run) -> Mapping[str, Any] | None:
            started = time.perf_counter()
            try:
                return work(run)
            finally:
                self._add(name, time.perf_counter() - started)

        return self._timed_by_events(name, work) if self._is_cuda else measured

    def _timed_by_events(self, name: str, work: Work) -> Work:
        def measured(run: Run) -> Mapping[str, Any] | None:
            while self._pending and self._pending[0][2].query():
                self._read()
            if len(self._pending) >= _MAX_PENDING:
                return work(run)
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            try:
                return work(run)
            finally:
                last.record()
                self._pending.append((name, first, last))

        return measured

    def _read(self) -> None:
        """Add the time of the oldest GPU stage, which has ended."""
        name, first, last = self._pending.popleft()
        self._add(name, first.elapsed_time(last) / 1000)

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the mean milliseconds per stage since the last call, and reset; this waits for the GPU."""
        if self._pending:
            self._pending[-1][2].synchronize()
        while self._pending:
            self._read()
        found = {
            f"{name}_ms": 1000 * seconds / self._counts[name]
            for name, seconds in self._seconds.items()
        }
        self._seconds, self._counts = {}, {}
        return found
