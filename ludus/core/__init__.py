"""The training loop and its vocabulary: plan, cursor, run, hooks, trainer. It imports nothing else of ludus.

Names are imported lazily, so that importing an error does not load the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.core.abilities import (
        Evaluates as Evaluates,
        Exports as Exports,
        Narrates as Narrates,
        Plays as Plays,
        find_ability as find_ability,
    )
    from ludus.core.errors import (
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        Diverged as Diverged,
        HookError as HookError,
        Interrupted as Interrupted,
        LudusError as LudusError,
        PlanError as PlanError,
        RunError as RunError,
        StorageError as StorageError,
    )
    from ludus.core.intervals import follow_ups as follow_ups
    from ludus.core.plan import Repeat as Repeat, Stage as Stage
    from ludus.core.run import (
        Every as Every,
        Observer as Observer,
        Run as Run,
        Stateful as Stateful,
    )
    from ludus.core.runtime import InMemoryRuntime as InMemoryRuntime, Result as Result
    from ludus.core.trainer import Trainer as Trainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
