"""Where a run computes: the device, its threads, whether torch must repeat its bytes, and TF32."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

from ludus.config.base import Settings, TrainerConfig
from ludus.core.errors import ConfigError

Tf32 = bool | Literal["convolutions"]
"""Whether float32 products may be computed in TF32: none, those of convolutions (and RNNs), or all."""


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
    """Sets torch and NumPy up as a config says, and puts them back as they were at the end."""

    def __init__(self, settings: Settings, *, tf32: Tf32 | None = None) -> None:
        """Without `tf32`, torch's own choice stays."""
        self.device = resolve_device(settings.device)
        self._settings = settings
        self._tf32 = tf32
        self._stack = contextlib.ExitStack()

    @classmethod
    def of(cls, config: TrainerConfig) -> Compute:
        """Return it for runs of this config."""
        return cls(config.settings, tf32=getattr(config, "tf32", None))

    def __enter__(self) -> Compute:
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._is_filled = _filling.fill_uninitialized_memory
        if self._settings.threads is not None:
            torch.set_num_threads(self._settings.threads)
            # NumPy computes too, where small networks act, with threads of its own.
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
            # Filling every new tensor before it is written is for programs that read what they never wrote.
            _filling.fill_uninitialized_memory = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        torch.set_num_threads(self._threads)
        torch.set_deterministic_debug_mode("error" if self._deterministic else "default")
        _filling.fill_uninitialized_memory = self._is_filled


@contextlib.contextmanager
def products_in(tf32: Tf32) -> Iterator[None]:
    """Let CUDA compute these float32 products in TF32 inside the block, and as before after it."""
    # Not by `fp32_precision`: after that torch's compiler, which asks by these names, refuses to answer.
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
