"""The schedule-free optimizer: its moments by parameter name, and the numbers of its mean."""

from __future__ import annotations

import torch

from ludus.nn.flat import FlatParameters
from ludus.nn.optimizer import Optimizer
from ludus.nn.optimizers.schedule_free_adamw import ScheduleFreeAdamW

# The distance to the iterate has either sign.
HARMLESS = ("moments/0/* negative",)


def make() -> Optimizer:
    torch.manual_seed(0)
    config = ScheduleFreeAdamW(
        kind="schedule_free_adamw", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8,
        weight_decay=0.01, step_power=0.0, rate_power=2.0,
    )  # fmt: skip
    return Optimizer(config, FlatParameters(torch.nn.Linear(3, 2)))


def use(optimizer: Optimizer) -> None:
    optimizer._flat.vectors[0].fill_(0.5)
    optimizer._flat.gradients[0].fill_(0.25)
    optimizer.step(0.1, stays=[None])
