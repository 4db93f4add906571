"""Supervised training: learn from labelled examples, validate, stop early, keep the best model.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.supervised.config import SupervisedConfig
    from ludus.supervised.trainer import BaseTrainer
    from ludus.supervised.trainers.supervised import Trainer

_WHERE = {
    "BaseTrainer": "ludus.supervised.trainer",
    "SupervisedConfig": "ludus.supervised.config",
    "Trainer": "ludus.supervised.trainers.supervised",
}

__all__ = [
    "BaseTrainer",
    "SupervisedConfig",
    "Trainer",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
