"""Config files: strict YAML, typed sections, overrides, migrations, and the registry of kinds.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.config.base import (
        CheckpointSettings,
        Count,
        FileConfig,
        Fraction,
        NonNegativeFloat,
        Positive,
        PositiveFloat,
        Settings,
        StrictConfig,
        TrainerConfig,
        read_config,
    )
    from ludus.config.families import declare
    from ludus.config.registry import (
        TrainerType,
        find,
        kinds,
        load_plugin,
        register,
        register_trainer,
    )
    from ludus.config.sections import registered

_WHERE = {
    "CheckpointSettings": "ludus.config.base",
    "Count": "ludus.config.base",
    "FileConfig": "ludus.config.base",
    "Fraction": "ludus.config.base",
    "NonNegativeFloat": "ludus.config.base",
    "Positive": "ludus.config.base",
    "PositiveFloat": "ludus.config.base",
    "Settings": "ludus.config.base",
    "StrictConfig": "ludus.config.base",
    "TrainerConfig": "ludus.config.base",
    "TrainerType": "ludus.config.registry",
    "declare": "ludus.config.families",
    "find": "ludus.config.registry",
    "kinds": "ludus.config.registry",
    "load_plugin": "ludus.config.registry",
    "read_config": "ludus.config.base",
    "register": "ludus.config.registry",
    "register_trainer": "ludus.config.registry",
    "registered": "ludus.config.sections",
}

__all__ = [
    "CheckpointSettings",
    "Count",
    "FileConfig",
    "Fraction",
    "NonNegativeFloat",
    "Positive",
    "PositiveFloat",
    "Settings",
    "StrictConfig",
    "TrainerConfig",
    "TrainerType",
    "declare",
    "find",
    "kinds",
    "load_plugin",
    "read_config",
    "register",
    "register_trainer",
    "registered",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
