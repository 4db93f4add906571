"""A learner with groups: weights and moments by name, the steps of each group and whether it is frozen."""

from __future__ import annotations

import torch
from torch import nn

from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam

ADAM = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)
# Weights and means of gradients have either sign.
HARMLESS = ("weights/* negative", "optimizer/moments/0/* negative")


def make() -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    return Learner(net, ADAM, max_grad_norm=None, groups=[Group("body", ("0",), rate=0.5)])


def use(learner: Learner) -> None:
    for is_frozen in (False, True):
        learner.set_frozen("body", is_frozen)
        learner.step(lambda net: (net(torch.ones(4, 3)).square().mean(), ()), torch.tensor(0.1))
