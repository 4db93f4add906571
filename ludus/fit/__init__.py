"""Fitting a network to examples, epoch by epoch: the loop, the update of a model, its learning rate.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.fit.build import make_update
    from ludus.fit.config import FitConfig
    from ludus.fit.loop import Fit
    from ludus.fit.rate_control import RateControl
    from ludus.fit.update import ModelUpdate
    from ludus.fit.watchers import make_judge

_WHERE = {
    "Fit": "ludus.fit.loop",
    "FitConfig": "ludus.fit.config",
    "ModelUpdate": "ludus.fit.update",
    "RateControl": "ludus.fit.rate_control",
    "make_judge": "ludus.fit.watchers",
    "make_update": "ludus.fit.build",
}

__all__ = [
    "Fit",
    "FitConfig",
    "ModelUpdate",
    "RateControl",
    "make_judge",
    "make_update",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
