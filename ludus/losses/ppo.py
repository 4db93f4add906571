"""The losses of proximal policy optimisation: clipped or KL-penalised policy, clipped value, entropy.

Shapes: B batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_policy_loss(
    log_probs_B: Tensor, old_log_probs_B: Tensor, advantages_B: Tensor, clip: float | Tensor
) -> Tensor:
    """Return the negative of the smaller of the plain and the clipped gain."""
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    clipped_B = torch.clamp(ratios_B, 1 - clip, 1 + clip)
    return -torch.minimum(ratios_B * advantages_B, clipped_B * advantages_B).mean()


def kl_policy_loss(
    log_probs_B: Tensor, old_log_probs_B: Tensor, advantages_B: Tensor, beta: float | Tensor
) -> Tensor:
    """Return the negative gain plus beta times the distance from the old policy."""
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    return -(ratios_B * advantages_B).mean() + beta * approximate_kl(log_probs_B, old_log_probs_B)


def approximate_kl(log_probs_B: Tensor, old_log_probs_B: Tensor) -> Tensor:
    """Return an estimate of KL(old, new) from the old policy's own samples; never negative."""
    log_ratios_B = log_probs_B - old_log_probs_B
    return (log_ratios_B.exp() - 1 - log_ratios_B).mean()


def value_loss(
    values_B: Tensor, old_values_B: Tensor, returns_B: Tensor, clip: float | None
) -> Tensor:
    """Return half the mean squared error; with a clip, the worse of moving freely and moving a little."""
    free_B = (values_B - returns_B).square()
    if clip is None:
        return 0.5 * free_B.mean()
    near_B = old_values_B + (values_B - old_values_B).clamp(-clip, clip)
    return 0.5 * torch.maximum(free_B, (near_B - returns_B).square()).mean()
