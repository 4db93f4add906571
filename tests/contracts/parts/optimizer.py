"""The optimizer: its moments, by parameter name."""

from __future__ import annotations

import torch

from ludus.nn.flat import FlatParameters
from ludus.nn.optimizer import Optimizer, Sgd

# Means of gradients have either sign.
HARMLESS = ("moments/0/* negative",)


def make() -> Optimizer:
    torch.manual_seed(0)
    config = Sgd(kind="sgd", learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    return Optimizer(config, FlatParameters(torch.nn.Linear(3, 2)))


def use(optimizer: Optimizer) -> None:
    optimizer._flat.vectors[0].fill_(0.5)
    optimizer._flat.gradients[0].fill_(0.25)
    optimizer.step(0.1, stays=[None])
