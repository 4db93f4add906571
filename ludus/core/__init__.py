"""The one loop and its words: plan, cursor, run, hooks, trainer. It imports nothing else of ludus."""

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
from ludus.core.surroundings import Result
from ludus.core.trainer import Trainer

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
