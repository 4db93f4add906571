"""Active learning: a model that asks for the labels it needs, and is told when the world has moved on.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.active.config import ActiveConfig
    from ludus.active.drift.calibration import ece, mce, mean_entropy, reliability
    from ludus.active.drift.estimator import Window
    from ludus.active.drift.shift_kinds.hard_switch import HardSwitch
    from ludus.active.drift.simulator import Simulator
    from ludus.active.drift.temperature import fit_temperature
    from ludus.active.drift.trigger import Trigger, TriggerConfig
    from ludus.active.models.features import ActiveModel, Features
    from ludus.active.selection import h_score, leep, logme, nce
    from ludus.active.strategy import ScoreConfig, ScoreStrategy, Strategy
    from ludus.active.trainers.active import ActiveTrainer

_WHERE = {
    "ActiveConfig": "ludus.active.config",
    "ActiveModel": "ludus.active.models.features",
    "ActiveTrainer": "ludus.active.trainers.active",
    "Features": "ludus.active.models.features",
    "HardSwitch": "ludus.active.drift.shift_kinds.hard_switch",
    "ScoreConfig": "ludus.active.strategy",
    "ScoreStrategy": "ludus.active.strategy",
    "Simulator": "ludus.active.drift.simulator",
    "Strategy": "ludus.active.strategy",
    "Trigger": "ludus.active.drift.trigger",
    "TriggerConfig": "ludus.active.drift.trigger",
    "Window": "ludus.active.drift.estimator",
    "ece": "ludus.active.drift.calibration",
    "fit_temperature": "ludus.active.drift.temperature",
    "h_score": "ludus.active.selection",
    "leep": "ludus.active.selection",
    "logme": "ludus.active.selection",
    "mce": "ludus.active.drift.calibration",
    "mean_entropy": "ludus.active.drift.calibration",
    "nce": "ludus.active.selection",
    "reliability": "ludus.active.drift.calibration",
}

__all__ = [
    "ActiveConfig",
    "ActiveModel",
    "ActiveTrainer",
    "Features",
    "HardSwitch",
    "ScoreConfig",
    "ScoreStrategy",
    "Simulator",
    "Strategy",
    "Trigger",
    "TriggerConfig",
    "Window",
    "ece",
    "fit_temperature",
    "h_score",
    "leep",
    "logme",
    "mce",
    "mean_entropy",
    "nce",
    "reliability",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
