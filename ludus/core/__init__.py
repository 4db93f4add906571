"""The training loop and its vocabulary: plan, cursor, run, hooks, trainer. It imports nothing else of ludus.

Names are imported lazily, so that importing an error does not load the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.core.abilities import Evaluates, Exports, Narrates, Plays
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
    from ludus.core.runtime import InMemoryRuntime, Result
    from ludus.core.trainer import Trainer

_WHERE = {
    "CheckpointError": "ludus.core.errors",
    "ConfigError": "ludus.core.errors",
    "Diverged": "ludus.core.errors",
    "Evaluates": "ludus.core.abilities",
    "Every": "ludus.core.run",
    "Exports": "ludus.core.abilities",
    "HookError": "ludus.core.errors",
    "InMemoryRuntime": "ludus.core.runtime",
    "Interrupted": "ludus.core.errors",
    "LudusError": "ludus.core.errors",
    "Narrates": "ludus.core.abilities",
    "Observer": "ludus.core.run",
    "PlanError": "ludus.core.errors",
    "Plays": "ludus.core.abilities",
    "Repeat": "ludus.core.plan",
    "Result": "ludus.core.runtime",
    "Run": "ludus.core.run",
    "RunError": "ludus.core.errors",
    "Stage": "ludus.core.plan",
    "Stateful": "ludus.core.run",
    "StorageError": "ludus.core.errors",
    "Trainer": "ludus.core.trainer",
}

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Diverged",
    "Evaluates",
    "Every",
    "Exports",
    "HookError",
    "InMemoryRuntime",
    "Interrupted",
    "LudusError",
    "Narrates",
    "Observer",
    "PlanError",
    "Plays",
    "Repeat",
    "Result",
    "Run",
    "RunError",
    "Stage",
    "Stateful",
    "StorageError",
    "Trainer",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
