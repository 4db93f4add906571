"""The training loop and its vocabulary: plan, cursor, run, hooks, trainer. It imports nothing else of ludus.

Names are imported lazily, so that importing an error does not load the loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.core.errors import (
        CheckpointError,
        ConfigError,
        Diverged,
        HookError,
        Interrupted,
        LudusError,
        PlanError,
        RunError,
        StorageError,
    )
    from ludus.core.plan import Repeat, Stage
    from ludus.core.run import Every, Observer, Run, Stateful
    from ludus.core.runtime import Result
    from ludus.core.trainer import Trainer

_WHERE = {
    "Every": "run",
    "Observer": "run",
    "Repeat": "plan",
    "Result": "runtime",
    "Run": "run",
    "Stage": "plan",
    "Stateful": "run",
    "Trainer": "trainer",
}
"""Module of each exported name; errors are not listed."""

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Diverged",
    "Every",
    "HookError",
    "Interrupted",
    "LudusError",
    "Observer",
    "PlanError",
    "Repeat",
    "Result",
    "Run",
    "RunError",
    "Stage",
    "Stateful",
    "StorageError",
    "Trainer",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ludus.core' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"ludus.core.{_WHERE.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
