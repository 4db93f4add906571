"""The temporal-difference (TD) loss of deep Q-learning, plain or double, with importance weights.

Shapes: B batch, A actions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def td_targets(
    rewards_B: Tensor,
    discounts_B: Tensor,
    next_q_BA: Tensor,
    choosing_q_BA: Tensor,
    next_masks_BA: Tensor | None = None,
) -> Tensor:
    """Return the n-step TD target: reward plus the discounted value of the next state.

    `rewards_B` is the discounted sum over the n steps taken, `discounts_B` is gamma**n, and 0 where the
    episode terminated; a truncated episode keeps its discount. The next action is the argmax of
    `choosing_q_BA`: the online network's Q-values make it double Q-learning, the target network's own make it
    plain. Only actions that `next_masks_BA` allows are chosen; a state in which none is allowed must have
    discount 0, since its value is meaningless.
    """
    if choosing_q_BA is next_q_BA and next_masks_BA is None:
        return torch.addcmul(rewards_B, discounts_B, next_q_BA.amax(1))
    if next_masks_BA is not None:
        lowest = torch.finfo(choosing_q_BA.dtype).min
        choosing_q_BA = choosing_q_BA.masked_fill(~next_masks_BA, lowest)
    best_B1 = choosing_q_BA.argmax(1, keepdim=True)
    return torch.addcmul(rewards_B, discounts_B, next_q_BA.gather(1, best_B1).squeeze(1))


def dueling_q(values_B1: Tensor, advantages_BA: Tensor) -> Tensor:
    """Return the Q-values of a dueling network: state value plus advantage minus mean advantage."""
    return values_B1 + advantages_BA - advantages_BA.mean(1, keepdim=True)


def td_errors(q_BA: Tensor, actions_B: Tensor, targets_B: Tensor) -> Tensor:
    """Return the TD error of each action taken: its Q-value minus its target."""
    return q_BA.gather(1, actions_B.unsqueeze(1)).squeeze(1) - targets_B


def td_loss(
    errors_B: Tensor, weights_B: Tensor | None = None, *, huber: float | None = 1.0
) -> Tensor:
    """Return the mean Huber loss of the TD errors, each times its importance weight if given.

    Within `huber` it is half the squared error, beyond it linear; None means half the squared error
    throughout.
    """
    if huber is None:
        losses_B = 0.5 * errors_B.square()
    else:
        zeros_B = torch.zeros_like(errors_B)
        losses_B = functional.huber_loss(errors_B, zeros_B, reduction="none", delta=huber)
    return (losses_B if weights_B is None else losses_B * weights_B).mean()
