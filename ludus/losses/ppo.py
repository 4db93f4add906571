"""The losses of proximal policy optimisation (PPO): policy, clipped or KL-penalised, value and entropy.

Shapes: B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ROUNDING = 1e-6
"""A KL divergence below this is that of equal policies."""


def clipped_gains(ratios_B: Tensor, clipped_B: Tensor, advantages_B: Tensor) -> Tensor:
    """Return the clipped surrogate objective of each example, by its ratio and its clipped ratio."""
    return torch.minimum(ratios_B * advantages_B, clipped_B * advantages_B)


def clipped_policy_loss(
    log_probs_B: Tensor, old_log_probs_B: Tensor, advantages_B: Tensor, clip: float | Tensor
) -> Tensor:
    """Return the clipped surrogate loss: the negative minimum of the plain and the clipped objective."""
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    bounds: Any = (1 - clip, 1 + clip)
    return -clipped_gains(ratios_B, torch.clamp(ratios_B, *bounds), advantages_B).mean()


def kl_policy_loss(
    log_probs_B: Tensor,
    old_log_probs_B: Tensor,
    advantages_B: Tensor,
    beta: float | Tensor,
    kl_B: Tensor | None = None,
) -> Tensor:
    """Return the negative surrogate objective plus beta times the KL divergence from the old policy.

    `kl_B` is the exact KL divergence if known; without it, it is estimated from the batch.
    """
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    kl = approximate_kl(log_probs_B, old_log_probs_B) if kl_B is None else kl_B.mean()
    return -(ratios_B * advantages_B).mean() + beta * kl


def approximate_kl(log_probs_B: Tensor, old_log_probs_B: Tensor) -> Tensor:
    """Return an estimate of KL(old, new) from the old policy's own samples; never negative."""
    log_ratios_B = log_probs_B - old_log_probs_B
    return (log_ratios_B.exp() - 1 - log_ratios_B).mean()


def clip_fraction(log_probs_B: Tensor, old_log_probs_B: Tensor, clip: float | Tensor) -> Tensor:
    """Return the fraction of the batch whose probability ratio is clipped."""
    ratios_B = (log_probs_B - old_log_probs_B).exp()
    return ((ratios_B - 1).abs() > clip).to(log_probs_B.dtype).mean()


def next_kl_beta(beta: float, kl: float, *, target: float) -> float:
    """Return the KL coefficient (beta) for the next update.

    It doubles if the KL divergence was well above the target, and halves if it was well below.
    """
    if kl > 1.5 * target:
        return beta * 2
    return beta / 2 if kl < target / 1.5 else beta


def adapted_kl_beta(
    beta: Tensor, kl: Tensor, *, target: Tensor, increment: Tensor, decrement: Tensor
) -> Tensor:
    """Return the KL coefficient (beta) for the next update, without waiting for the device.

    A KL divergence of 0, up to rounding, says nothing: the policy is still the one that acted.
    """
    up = torch.where(kl > 1.5 * target, increment, 1.0)
    has_moved = kl > _ROUNDING
    down = torch.where((kl < target / 1.5) & has_moved, decrement, 1.0)
    return beta * (up * down)


def normalised(advantages_B: Tensor) -> Tensor:
    """Return the advantages normalised to mean 0 and standard deviation 1; a single one unchanged."""
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
    """Return the total loss of one update: policy loss plus weighted value loss minus entropy bonus."""
    return policy_loss + value_weight * critic_loss - entropy_weight * entropies_B.mean()


def squared_error(values_B: Tensor, returns_B: Tensor) -> Tensor:
    """Return the squared error of each value."""
    return (values_B - returns_B).square()


def value_errors(
    values_B: Tensor,
    old_values_B: Tensor,
    returns_B: Tensor,
    clip: float | None,
    error: Callable[[Tensor, Tensor], Tensor] = squared_error,
) -> Tensor:
    """Return the error of each value.

    With a clip, it is the larger of those of the value and of the value clipped to within the clip of its old
    value.
    """
    free_B = error(values_B, returns_B)
    if clip is None:
        return free_B
    near_B = old_values_B + (values_B - old_values_B).clamp(-clip, clip)
    return torch.maximum(free_B, error(near_B, returns_B))


def value_loss(
    values_B: Tensor, old_values_B: Tensor, returns_B: Tensor, clip: float | None
) -> Tensor:
    """Return half the mean squared error of the values, clipped where there is a clip."""
    return 0.5 * value_errors(values_B, old_values_B, returns_B, clip).mean()


def ppo_objective(
    log_probs_B: Tensor,
    entropies_B: Tensor,
    values_B: Tensor,
    *,
    old_log_probs_B: Tensor,
    advantages_B: Tensor,
    returns_B: Tensor,
    old_values_B: Tensor,
    bound: Tensor,
    is_clipped: bool,
    value_clip: float | None,
    value_coef: float,
    entropy_coef: float,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the loss of one update of PPO and its terms.

    `bound` is the clip range where ratios are clipped, else the KL coefficient. The terms are the policy
    loss, half the mean squared error of the values, the entropy loss, the approximate KL divergence, and the
    fraction of clipped ratios, or the KL coefficient.
    """
    surrogate = clipped_policy_loss if is_clipped else kl_policy_loss
    policy_loss = surrogate(log_probs_B, old_log_probs_B, advantages_B, bound)
    error = value_loss(values_B, old_values_B, returns_B, value_clip)
    loss = ppo_loss(
        policy_loss, error, entropies_B, value_weight=value_coef, entropy_weight=entropy_coef
    )
    with torch.no_grad():
        kl = approximate_kl(log_probs_B, old_log_probs_B)
        last = clip_fraction(log_probs_B, old_log_probs_B, bound) if is_clipped else bound
    entropy_loss = -entropies_B.detach().mean()
    return loss, (policy_loss.detach(), error.detach(), entropy_loss, kl, last)
