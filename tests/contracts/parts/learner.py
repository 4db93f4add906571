"""A learner: the weights of its network and the moments of its optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam

# Weights and means of gradients have either sign.
HARMLESS = ("weights/* negative", "optimizer/moments/0/* negative")


def make() -> Learner:
    torch.manual_seed(0)
    config = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)
    return Learner(nn.Linear(3, 2), config, max_grad_norm=1.0)


def use(learner: Learner) -> None:
    inputs = torch.arange(12.0).view(4, 3)

    def loss_fn(network: Any) -> tuple[Tensor, None]:
        return network(inputs).square().mean(), None

    for _ in range(3):
        learner.step(loss_fn, 0.1)
