"""Memory in use by this process, and by the GPUs that it uses."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping

import psutil


class Memory:
    """Reads the memory use of this process, at most once a second."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._looked = -math.inf
        self._found: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """Return the memory in use, and that of the GPUs if this process uses any."""
        now = time.monotonic()
        if now - self._looked >= 1.0:
            self._looked = now
            used, total = self._process.memory_info().rss, psutil.virtual_memory().total
            self._found = {"memory": f"{_gigabytes(used)} of {_gigabytes(total)}", **_cuda_memory()}
        return self._found


def _cuda_memory() -> dict[str, str]:
    # Never imported or initialised here: the display must not be what starts a GPU.
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return {}
    devices = range(cuda.device_count())
    used = sum(cuda.memory_allocated(device) for device in devices)
    peak = sum(cuda.max_memory_allocated(device) for device in devices)
    return {"gpu memory": f"{_gigabytes(used)}, peak {_gigabytes(peak)}"}


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.0f} MB"
