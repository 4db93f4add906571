"""Training speed: moves per second outside evaluations, and host syncs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from ludus.core import Run
from ludus.games.host_syncs import HostSyncs


class TrainingClock:
    """Measures training time from one record to the next; it depends on the clock, so it is not saved."""

    def __init__(self, device: torch.device) -> None:
        self.syncs = HostSyncs(device)
        self._since = time.monotonic()
        self._steps = 0
        self._spent = 0.0

    def start(self, run: Run) -> None:
        """Start measuring: earlier work of the run, also in earlier processes, is not counted."""
        self._since, self._steps = time.monotonic(), run.counters["game_steps"]

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Exclude the block from the rates; the caller has synchronized with the device before."""
        started = time.monotonic()
        yield
        self._since += time.monotonic() - started

    def log(self, run: Run) -> None:
        """Log the rates since the last call and the training seconds of this process, and reset."""
        elapsed = max(time.monotonic() - self._since, 1e-9)
        self._spent += elapsed
        run.log.rate("training_seconds", self._spent)
        run.log.rate("game_steps_per_sec", (run.counters["game_steps"] - self._steps) / elapsed)
        self.syncs.log(run)
        self.start(run)
