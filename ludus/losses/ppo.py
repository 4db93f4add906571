"""The losses of proximal policy optimisation: policy, clipped or KL-penalised, value and entropy.

Shapes: B batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def clipped_policy_loss(
    log_probs_B: Tensor, old_log_probs_B: Tensor, advantages_B: Tensor, clip: float | Tensor
) -> Tensor:
    """Return the negative of the smaller of the plain and the clipped gain."""
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    bounds: Any = (1 - clip, 1 + clip)
    clipped_B = torch.clamp(ratios_B, *bounds)
    return -torch.minimum(ratios_B * advantages_B, clipped_B * advantages_B).mean()


def kl_policy_loss(
    log_probs_B: Tensor,
    old_log_probs_B: Tensor,
    advantages_B: Tensor,
    beta: float | Tensor,
    kl_B: Tensor | None = None,
) -> Tensor:
    """Return the negative gain plus beta times the distance from the old policy.

    `kl_B` is that distance where it is known exactly; without it, it is estimated from the batch.
    """
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    kl = approximate_kl(log_probs_B, old_log_probs_B) if kl_B is None else kl_B.mean()
    return -(ratios_B * advantages_B).mean() + beta * kl


def approximate_kl(log_probs_B: Tensor, old_log_probs_B: Tensor) -> Tensor:
    """Return an estimate of KL(old, new) from the old policy's own samples; never negative."""
    log_ratios_B = log_probs_B - old_log_probs_B
    return (log_ratios_B.exp() - 1 - log_ratios_B).mean()


def clip_fraction(log_probs_B: Tensor, old_log_probs_B: Tensor, clip: float | Tensor) -> Tensor:
    """Return the share of the batch whose ratio has left the clip."""
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    return ((ratios_B - 1).abs() > clip).to(log_probs_B.dtype).mean()


def next_kl_beta(beta: float, kl: float, *, target: float) -> float:
    """Return the KL coefficient for the next update.

    It doubles when the policy moved much further than the target, and halves when much less.
    """
    if kl > 1.5 * target:
        return beta * 2
    return beta / 2 if kl < target / 1.5 else beta


def normalised(advantages_B: Tensor) -> Tensor:
    """Return the advantages shifted to mean 0 and scaled to deviation 1; a single one as it is."""
    if advantages_B.numel() < 2:
        return advantages_B
    return (advantages_B - advantages_B.mean()) / (advantages_B.std() + 1e-8)


def ppo_loss(
    policy_loss: Tensor,
    critic_loss: Tensor,
    entropies_B: Tensor,
    *,
    value_weight: float | Tensor,
    entropy_weight: float | Tensor,
) -> Tensor:
    """Return what one update minimises: policy and weighted value loss, less the entropy bonus."""
    return policy_loss + value_weight * critic_loss - entropy_weight * entropies_B.mean()


def value_loss(
    values_B: Tensor, old_values_B: Tensor, returns_B: Tensor, clip: float | None
) -> Tensor:
    """Return half the mean squared error of the values.

    With a clip, an example costs the worse of moving freely and of moving from its old value by no
    more than the clip.
    """
    free_B = (values_B - returns_B).square()
    if clip is None:
        return 0.5 * free_B.mean()
    near_B = old_values_B + (values_B - old_values_B).clamp(-clip, clip)
    return 0.5 * torch.maximum(free_B, (near_B - returns_B).square()).mean()
