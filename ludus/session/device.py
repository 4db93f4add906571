"""Compute settings of a run: device, threads, deterministic algorithms and TF32."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

from ludus.config.base import Settings, TrainerConfig
from ludus.core.errors import ConfigError

Tf32 = bool | Literal["convolutions"]
"""Which float32 products may use TF32: none, those of convolutions (and RNNs), or all."""


def resolve_device(name: str, *, key: str = "settings.device") -> torch.device:
    """Return the device of this name; raise ConfigError if this machine does not have it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"{key} is '{name}', which is no device; write cpu, cuda, cuda:1 or auto"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"{key} is '{name}', but torch sees no CUDA device here; write cpu or auto"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"{key} is '{name}', but there are {torch.cuda.device_count()} CUDA devices"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"{key} is '{name}', but torch sees no Metal device; write cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"{key} is '{name}'; ludus computes on cpu, cuda or mps")
    return device


# torch exports no types for this module.
_filling: Any = torch.utils.deterministic


class Compute:
    """Context manager: sets up torch and NumPy as a config says, and restores them on exit."""

    def __init__(self, settings: Settings, *, tf32: Tf32 | None = None) -> None:
        """Without `tf32`, torch's own setting stays."""
        self.device = resolve_device(settings.device)
        self._settings = settings
        self._tf32 = tf32
        self._stack = contextlib.ExitStack()

    @classmethod
    def of(cls, config: TrainerConfig) -> Compute:
        """Return the compute settings of this config."""
        return cls(config.settings, tf32=getattr(config, "tf32", None))

    def __enter__(self) -> Compute:
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._is_filled = _filling.fill_uninitialized_memory
        if self._settings.threads is not None:
            torch.set_num_threads(self._settings.threads)
            # NumPy has its own threads, and computes where small networks act.
            self._stack.enter_context(
                threadpool_limits(limits=self._settings.threads, user_api="blas")
            )
        if self._tf32 is not None and self.device.type == "cuda":
            self._stack.enter_context(products_in(self._tf32))
        if self._settings.deterministic:
            # cuBLAS reads this when it starts; without it torch refuses deterministic algorithms.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            # The same as use_deterministic_algorithms, which would import the compiler as well.
            torch.set_deterministic_debug_mode("error")
            # Filling new tensors only helps programs that read uninitialised memory.
            _filling.fill_uninitialized_memory = False
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        torch.set_num_threads(self._threads)
        torch.set_deterministic_debug_mode("error" if self._deterministic else "default")
        _filling.fill_uninitialized_memory = self._is_filled


@contextlib.contextmanager
def products_in(tf32: Tf32) -> Iterator[None]:
    """Allow TF32 for these float32 products on CUDA inside the block; restore the setting after it."""
    # Not by `fp32_precision`: torch's compiler reads these older names and fails after that.
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        raise ConfigError(
            "torch's switches of TF32 were set by two APIs, which disagree; leave them to the key 'tf32', and"
            " set neither torch.backends.*.fp32_precision nor allow_tf32 in the script"
        ) from None
    torch.set_float32_matmul_precision("high" if tf32 is True else "highest")
    torch.backends.cudnn.allow_tf32 = bool(tf32)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
