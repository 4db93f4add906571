"""How fast a run trains: moves a second outside evaluations, and how often the host waits for the GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from ludus.core import Run
from ludus.games.host_syncs import HostSyncs


class TrainingClock:
    """Measures what training takes from one record to the next; as it depends on the time, it is no state."""

    def __init__(self, device: torch.device) -> None:
        self.syncs = HostSyncs(device)
        self._since = time.monotonic()
        self._steps = 0
        self._spent = 0.0

    def start(self, run: Run) -> None:
        """Begin to measure here: what the run made before, in an earlier process too, is not counted."""
        self._since, self._steps = time.monotonic(), run.counters["game_steps"]

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Leave what the block takes out of the rates; whoever enters has waited for the device before."""
        started = time.monotonic()
        yield
        self._since += time.monotonic() - started

    def log(self, run: Run) -> None:
        """Log the rates since the last call and the seconds of training of this process, and begin anew."""
        elapsed = max(time.monotonic() - self._since, 1e-9)
        self._spent += elapsed
        run.log.rate("training_seconds", self._spent)
        run.log.rate("game_steps_per_sec", (run.counters["game_steps"] - self._steps) / elapsed)
        self.syncs.log(run)
        self.start(run)
