"""Supervised training: learn from labelled examples, validate, stop early, keep the best model.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.supervised.config import SupervisedConfig as SupervisedConfig
    from ludus.supervised.trainer import BaseTrainer as BaseTrainer
    from ludus.supervised.trainers.supervised import Trainer as Trainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
