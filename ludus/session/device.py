"""Where a run computes: the device, its threads, and whether torch must repeat its bytes."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from ludus.config.base import Settings
from ludus.core.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """Return the device of this name; refuse one that this machine does not have."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"settings.device is '{name}', which is no device; write cpu, cuda, cuda:1 or auto"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"settings.device is '{name}', but torch sees no CUDA device here; write cpu or auto"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"settings.device is '{name}', but there are {torch.cuda.device_count()} CUDA devices"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"settings.device is '{name}', but torch sees no Metal device; write cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"settings.device is '{name}'; ludus computes on cpu, cuda or mps")
    return device


# A module of which torch says nothing to type checkers.
_filling: Any = torch.utils.deterministic


class Compute:
    """Sets torch and NumPy up as the settings say, and puts them back as they were at the end."""

    def __init__(self, settings: Settings) -> None:
        self.device = resolve_device(settings.device)
        self._settings = settings
        self._blas = contextlib.ExitStack()

    def __enter__(self) -> Compute:
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._is_filled = _filling.fill_uninitialized_memory
        if self._settings.threads is not None:
            torch.set_num_threads(self._settings.threads)
            # NumPy computes too, where small networks act, with threads of its own.
            self._blas.enter_context(
                threadpool_limits(limits=self._settings.threads, user_api="blas")
            )
        if self._settings.deterministic:
            # cuBLAS reads this when it starts; without it torch refuses deterministic algorithms.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            # The same as use_deterministic_algorithms, which would import the compiler as well.
            torch.set_deterministic_debug_mode("error")
            # Filling every new tensor before it is written is for programs that read what they never wrote.
            _filling.fill_uninitialized_memory = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._blas.close()
        torch.set_num_threads(self._threads)
        torch.set_deterministic_debug_mode("error" if self._deterministic else "default")
        _filling.fill_uninitialized_memory = self._is_filled
