"""Active learning: query strategies, oracles, rounds of labelling and training, drift detection.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.active.adapters.networks import (
        Logits as Logits,
        hidden_features as hidden_features,
        timm_features as timm_features,
    )
    from ludus.active.adapters.sklearn import Classifier as Classifier
    from ludus.active.config import ActiveConfig as ActiveConfig
    from ludus.active.drift.calibration import (
        ece as ece,
        fit_temperature as fit_temperature,
        mce as mce,
        mean_entropy as mean_entropy,
        reliability as reliability,
    )
    from ludus.active.drift.estimator import Window as Window
    from ludus.active.drift.shifts import HardSwitch as HardSwitch, Simulator as Simulator
    from ludus.active.drift.trigger import Trigger as Trigger, TriggerConfig as TriggerConfig
    from ludus.active.models.features import ActiveModel as ActiveModel, Features as Features
    from ludus.active.scoring import PoolBatch as PoolBatch
    from ludus.active.selection import h_score as h_score, leep as leep, logme as logme, nce as nce
    from ludus.active.strategy import (
        ScoreConfig as ScoreConfig,
        ScoreStrategy as ScoreStrategy,
        Strategy as Strategy,
    )
    from ludus.active.trainers.active import ActiveTrainer as ActiveTrainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
