"""Networks, the Model that wraps one, flat parameters, optimizers and schedules.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.nn.engines.choice import Subject as Subject, choose_engine as choose_engine
    from ludus.nn.export.numpy_policy import NumpyPolicy as NumpyPolicy
    from ludus.nn.learner import Learner as Learner
    from ludus.nn.model import Model as Model
    from ludus.nn.optimizer import (
        Adam as Adam,
        OptimizerConfig as OptimizerConfig,
        Rule as Rule,
        Sgd as Sgd,
    )
    from ludus.nn.schedules import (
        Schedule as Schedule,
        ScheduleConfig as ScheduleConfig,
        Scheduler as Scheduler,
    )
    from ludus.nn.target import Target as Target
    from ludus.nn.update import Update as Update
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
