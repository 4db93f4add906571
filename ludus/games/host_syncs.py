"""How often the host waits for the GPU in a round, counted as torch finds it out."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ludus.core import Run

Work = Callable[[Run], Mapping[str, Any] | None]
_SIGN = "synchronizing CUDA operation"


class HostSyncs:
    """Counts, in the stages it is given, the operations that wait for the GPU; on the CPU there are none."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self.num_syncs = 0
        self.num_rounds = 0

    def counting(self, work: Work) -> Work:
        """Return the work of a stage that makes rounds, with its waits counted on a GPU."""
        if not self._is_cuda:
            return work

        def counted(run: Run) -> Mapping[str, Any] | None:
            first = run.counters["round"]
            with self.counted():
                result = work(run)
            self.num_rounds += run.counters["round"] - first
            return result

        return counted

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the waits inside the block."""
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
        """Log the mean of a round since the last call, if there was one."""
        if self.num_rounds:
            run.log.rate("host_syncs_a_round", self.num_syncs / self.num_rounds)
        self.num_syncs = self.num_rounds = 0
