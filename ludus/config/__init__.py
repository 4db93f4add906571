"""Config files: strict YAML, typed sections, overrides, migrations, and the registry of kinds.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.config.base import (
        CheckpointSettings as CheckpointSettings,
        Count as Count,
        FileConfig as FileConfig,
        Fraction as Fraction,
        NonNegativeFloat as NonNegativeFloat,
        Positive as Positive,
        PositiveFloat as PositiveFloat,
        Settings as Settings,
        StrictConfig as StrictConfig,
        TrainerConfig as TrainerConfig,
        read_config as read_config,
    )
    from ludus.config.families import declare as declare
    from ludus.config.registry import (
        TrainerType as TrainerType,
        find as find,
        kinds as kinds,
        load_plugin as load_plugin,
        register as register,
        register_trainer as register_trainer,
    )
    from ludus.config.sections import registered as registered
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
