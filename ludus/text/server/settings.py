"""Settings of the server: places, limits, and how much it computes at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ludus.core.errors import ConfigError

MEBI = 1 << 20
Say = Callable[[str], None]
"""Shows a line to whom the server belongs."""


@dataclass(frozen=True)
class EngineSettings:
    """How much the models and jobs of a root may use."""

    num_threads: int | None = 1
    """Threads of torch: more than one is slower for tiny models, and where cores are shared.

    None leaves this process as it is, and gives the worker one.
    """
    max_rows: int = 512
    """The number of samples that a model computes at a time."""
    max_loaded_models: int = 8
    """Above this, the least recently used idle model is released."""
    max_memory_gb: float | None = None
    """The memory that the weights of loaded models may take; None for no limit."""
    max_crashes: int = 5
    """A job fails once its worker has died this often in a row without taking a step."""
    needs_same_text: bool = True
    """Whether a model is refused whose samples may depend on the load."""
    device: str = "cpu"
    """Where models are sampled from and tuned."""

    def __post_init__(self) -> None:
        for name in ("num_threads", "max_rows", "max_loaded_models", "max_crashes"):
            _check(name, getattr(self, name))
        _check("max_memory_gb", self.max_memory_gb)


@dataclass(frozen=True)
class ServerSettings:
    """How the server is reached, and what one client may ask of it."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which the server may be addressed, besides IP addresses and localhost."""
    max_chat_bytes: int = 16 * MEBI
    max_body_bytes: int = MEBI
    """Of requests other than chat completions and uploads."""
    max_file_bytes: int = 1024 * MEBI
    max_pending: int = 10_000
    """Chat completions in progress; above it requests are refused with 429."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; give one from 1 to 65535, or 0 for a free one")
        for name in ("max_file_bytes", "max_pending", "requests_per_minute", "tokens_per_minute"):
            _check(name, getattr(self, name))


def _check(name: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ConfigError(f"{name} is {value}; give a number above 0")
