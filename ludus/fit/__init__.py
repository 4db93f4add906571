"""Fitting a network to examples, epoch by epoch: the loop, the update of a model, its learning rate.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.fit.build import make_update as make_update
    from ludus.fit.config import FitConfig as FitConfig
    from ludus.fit.loop import Fit as Fit
    from ludus.fit.rate_control import RateControl as RateControl
    from ludus.fit.update import ModelUpdate as ModelUpdate
    from ludus.fit.watchers import make_judge as make_judge
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
