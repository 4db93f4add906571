"""The three losses of soft actor-critic (SAC), and the squashed Gaussian they share.

Shapes: B batch, D action dimensions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def squashed_sample(mean_BD: Tensor, log_std_BD: Tensor, noise_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Return tanh of a Gaussian sample, in -1..1, and its log-probability.

    Actions that are then rescaled to low..high keep this log-probability: it changes by a constant.
    """
    raw_BD = mean_BD + log_std_BD.exp() * noise_BD
    gaussian_BD = -0.5 * noise_BD.square() - log_std_BD - _HALF_LOG_2PI
    # log(1 - tanh(x)^2), in a form that neither overflows nor loses digits.
    squash_BD = 2 * (math.log(2) - raw_BD - functional.softplus(-2 * raw_BD))
    return raw_BD.tanh(), (gaussian_BD - squash_BD).sum(1)


def critic_targets(
    rewards_B: Tensor,
    discounts_B: Tensor,
    next_q1_B: Tensor,
    next_q2_B: Tensor,
    next_log_probs_B: Tensor,
    temperature: float | Tensor,
) -> Tensor:
    """Return reward plus the discounted soft value of the next state; call it without gradients.

    `discounts_B` is gamma**n for the n steps taken, and 0 where the episode terminated.
    """
    soft_B = torch.minimum(next_q1_B, next_q2_B) - temperature * next_log_probs_B
    return rewards_B + discounts_B * soft_B


def critic_loss(
    q1_B: Tensor, q2_B: Tensor, targets_B: Tensor, weights_B: Tensor | None = None
) -> Tensor:
    """Return the mean squared error of both critics, summed; examples may have importance weights."""
    losses_B = (q1_B - targets_B).square() + (q2_B - targets_B).square()
    return (losses_B if weights_B is None else losses_B * weights_B).mean()


def actor_loss(
    q1_B: Tensor, q2_B: Tensor, log_probs_B: Tensor, temperature: float | Tensor
) -> Tensor:
    """Return the actor loss: the mean of alpha * log_prob - min(Q1, Q2), where alpha is the temperature.

    The temperature, fixed or learned, must be detached: it has its own loss.
    """
    return (temperature * log_probs_B - torch.minimum(q1_B, q2_B)).mean()


def temperature_loss(
    log_temperature: Tensor, log_probs_B: Tensor, *, target_entropy: float
) -> Tensor:
    """Return the loss whose gradient raises the temperature while the entropy is below its target."""
    return -(log_temperature * (log_probs_B.detach() + target_entropy)).mean()
