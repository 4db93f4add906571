"""Networks, the Model that wraps one, flat parameters, optimizers and schedules.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.nn.engines.choice import Subject, choose_engine
    from ludus.nn.export.numpy_policy import NumpyPolicy
    from ludus.nn.learner import Learner
    from ludus.nn.model import Model
    from ludus.nn.optimizer import Adam, OptimizerConfig, Rule, Sgd
    from ludus.nn.schedules import Schedule, ScheduleConfig, Scheduler
    from ludus.nn.target import Target

_WHERE = {
    "Adam": "ludus.nn.optimizer",
    "Learner": "ludus.nn.learner",
    "Model": "ludus.nn.model",
    "NumpyPolicy": "ludus.nn.export.numpy_policy",
    "OptimizerConfig": "ludus.nn.optimizer",
    "Rule": "ludus.nn.optimizer",
    "Schedule": "ludus.nn.schedules",
    "ScheduleConfig": "ludus.nn.schedules",
    "Scheduler": "ludus.nn.schedules",
    "Sgd": "ludus.nn.optimizer",
    "Subject": "ludus.nn.engines.choice",
    "Target": "ludus.nn.target",
    "choose_engine": "ludus.nn.engines.choice",
}

__all__ = [
    "Adam",
    "Learner",
    "Model",
    "NumpyPolicy",
    "OptimizerConfig",
    "Rule",
    "Schedule",
    "ScheduleConfig",
    "Scheduler",
    "Sgd",
    "Subject",
    "Target",
    "choose_engine",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
