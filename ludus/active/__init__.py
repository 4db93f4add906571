"""Active learning: query strategies, oracles, rounds of labelling and training, drift detection.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.active.adapters.networks import Logits, hidden_features, timm_features
    from ludus.active.adapters.sklearn import Classifier
    from ludus.active.config import ActiveConfig
    from ludus.active.drift.calibration import ece, fit_temperature, mce, mean_entropy, reliability
    from ludus.active.drift.estimator import Window
    from ludus.active.drift.shifts import HardSwitch, Simulator
    from ludus.active.drift.trigger import Trigger, TriggerConfig
    from ludus.active.models.features import ActiveModel, Features
    from ludus.active.scoring import PoolBatch
    from ludus.active.selection import h_score, leep, logme, nce
    from ludus.active.strategy import ScoreConfig, ScoreStrategy, Strategy
    from ludus.active.trainers.active import ActiveTrainer

_WHERE = {
    "ActiveConfig": "ludus.active.config",
    "ActiveModel": "ludus.active.models.features",
    "ActiveTrainer": "ludus.active.trainers.active",
    "Classifier": "ludus.active.adapters.sklearn",
    "Features": "ludus.active.models.features",
    "HardSwitch": "ludus.active.drift.shifts",
    "Logits": "ludus.active.adapters.networks",
    "PoolBatch": "ludus.active.scoring",
    "ScoreConfig": "ludus.active.strategy",
    "ScoreStrategy": "ludus.active.strategy",
    "Simulator": "ludus.active.drift.shifts",
    "Strategy": "ludus.active.strategy",
    "Trigger": "ludus.active.drift.trigger",
    "TriggerConfig": "ludus.active.drift.trigger",
    "Window": "ludus.active.drift.estimator",
    "ece": "ludus.active.drift.calibration",
    "fit_temperature": "ludus.active.drift.calibration",
    "h_score": "ludus.active.selection",
    "hidden_features": "ludus.active.adapters.networks",
    "leep": "ludus.active.selection",
    "logme": "ludus.active.selection",
    "mce": "ludus.active.drift.calibration",
    "mean_entropy": "ludus.active.drift.calibration",
    "nce": "ludus.active.selection",
    "reliability": "ludus.active.drift.calibration",
    "timm_features": "ludus.active.adapters.networks",
}

__all__ = [
    "ActiveConfig",
    "ActiveModel",
    "ActiveTrainer",
    "Classifier",
    "Features",
    "HardSwitch",
    "Logits",
    "PoolBatch",
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
    "hidden_features",
    "leep",
    "logme",
    "mce",
    "mean_entropy",
    "nce",
    "reliability",
    "timm_features",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
