"""Speed of a run: host syncs, the operations that wait for the GPU, as torch reports them, and moves per
second."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ludus.core import Run

Work = Callable[[Run], Mapping[str, Any] | None]
_SIGN = "synchronizing CUDA operation"


class HostSyncs:
    """Count the host syncs in the wrapped stages; on the CPU there are none."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self.num_syncs = 0
        self._since: int | None = None
        """The round in which counting began after the last call of `log`."""

    def counting(self, work: Work) -> Work:
        """Return the work of a stage, with its host syncs counted on a GPU."""
        if not self._is_cuda:
            return work

        def counted(run: Run) -> Mapping[str, Any] | None:
            if self._since is None:
                self._since = run.counters["round"]
            with self._counted():
                return work(run)

        return counted

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the host syncs inside the block."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        self.num_syncs += sum(_SIGN in str(warning.message) for warning in caught)
        for warning in caught:
            if _SIGN not in str(warning.message) and "debug mode" not in str(warning.message):
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )

    def log(self, run: Run) -> None:
        """Log the mean number per round since the last call, if rounds were counted."""
        num_rounds = 0 if self._since is None else run.counters["round"] - self._since
        if num_rounds:
            run.log.rate("host_syncs_a_round", self.num_syncs / num_rounds)
            self.num_syncs, self._since = 0, None


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
