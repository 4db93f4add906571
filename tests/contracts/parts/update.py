"""The update in half precision with a running mean, in the middle of gathering a step."""

from __future__ import annotations

import torch

from ludus.fit.update import ModelUpdate
from ludus.nn.model import Model
from ludus.nn.optimizer import Adam
from tests.fit.made import model_update

# The mean of a state of version 0.1.0 goes on as it began.
OPTIONAL = ("ema_total",)
# A gradient may have diverged before the step that skips it.
HARMLESS = ("ema/* negative", "gradient/*", "totals NaN", "totals negative")


def make() -> ModelUpdate:
    torch.manual_seed(0)
    model = Model(torch.nn.Linear(3, 2), loss="cross_entropy")
    config = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)
    return model_update(
        model,
        config,
        accumulate=3,
        max_grad_norm=None,
        precision="bfloat16",
        ema_decay=0.9,
    )


def use(update: ModelUpdate) -> None:
    torch.manual_seed(1)
    batch = (torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))
    # The weights and moments are parts of their own: start them from the same place each time.
    update.flat.vectors[0].fill_(0.5)
    update.optimizer.num_steps.zero_()
    for moment in update.optimizer.parts[0].moments:
        moment.zero_()
    for _ in range(4):
        update.step(batch, 0, learning_rate=0.1, is_last=False)
