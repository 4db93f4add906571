"""Log-probabilities, entropies and samples of policy distributions, without objects.

Shapes: B batch, A actions, K choices of a multi-discrete action, D action dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# Far below any logit of a network, yet finite: 0 times it is 0, where 0 times infinity is NaN.
MASKED = -1e9


def masked_logits(logits_BA: Tensor, masks_BA: Tensor | None) -> Tensor:
    """Return the logits with those of masked actions set to a large negative number."""
    if masks_BA is None:
        return logits_BA
    lowest = max(MASKED, torch.finfo(logits_BA.dtype).min / 2)
    return logits_BA.masked_fill(~masks_BA, lowest)


def categorical_log_probs(logits_BA: Tensor, actions_B: Tensor) -> Tensor:
    """Return the log-probability of each action taken."""
    return logits_BA.log_softmax(1).gather(1, actions_B.unsqueeze(1)).squeeze(1)


def categorical_entropy(logits_BA: Tensor) -> Tensor:
    """Return the entropy of each row; actions masked by `masked_logits` add nothing to it."""
    log_probs_BA = logits_BA.log_softmax(1)
    return -(log_probs_BA.exp() * log_probs_BA).sum(1)


def categorical_kl(old_logits_BA: Tensor, logits_BA: Tensor) -> Tensor:
    """Return the exact KL divergence KL(old, new) of each row."""
    old_BA, new_BA = old_logits_BA.log_softmax(1), logits_BA.log_softmax(1)
    return (old_BA.exp() * (old_BA - new_BA)).sum(1)


def categorical_sample(logits_BA: Tensor, uniform_BA: Tensor) -> Tensor:
    """Return one action per row, sampled with the caller's uniform numbers from [0, 1)."""
    # The argmax of logits plus Gumbel noise is a sample (Gumbel-max trick), and needs no cumulative sums.
    tiny = torch.finfo(uniform_BA.dtype).tiny
    return (logits_BA - (-uniform_BA.clamp_min(tiny).log()).log()).argmax(1)


def multi_categorical_log_probs(
    logits_BA: Tensor, actions_BK: Tensor, *, nvec: Sequence[int]
) -> Tensor:
    """Return the log-probability of each row of choices; the blocks of logits are nvec wide."""
    blocks = logits_BA.split(list(nvec), 1)
    choices = [categorical_log_probs(block, actions_BK[:, k]) for k, block in enumerate(blocks)]
    return torch.stack(choices).sum(0)


def multi_categorical_entropy(logits_BA: Tensor, *, nvec: Sequence[int]) -> Tensor:
    """Return the entropy of each row of independent choices: the sum of their entropies."""
    blocks = logits_BA.split(list(nvec), 1)
    return torch.stack([categorical_entropy(block) for block in blocks]).sum(0)


def multi_categorical_sample(
    logits_BA: Tensor, uniform_BA: Tensor, *, nvec: Sequence[int]
) -> Tensor:
    """Return one row of choices for each row of logits, sampled with the caller's uniform numbers."""
    blocks = zip(logits_BA.split(list(nvec), 1), uniform_BA.split(list(nvec), 1), strict=True)
    return torch.stack([categorical_sample(block, uniform) for block, uniform in blocks], 1)


def gaussian_log_probs(means_BD: Tensor, log_stds_BD: Tensor, actions_BD: Tensor) -> Tensor:
    """Return the log-density of each action; log_stds may also be one row (D,) for all."""
    scaled_BD = (actions_BD - means_BD) * (-log_stds_BD).exp()
    return (-0.5 * scaled_BD.square() - log_stds_BD - _HALF_LOG_2PI).sum(-1)


def gaussian_entropy(log_stds_BD: Tensor) -> Tensor:
    """Return the entropy of each row; it does not depend on the means."""
    return (log_stds_BD + (0.5 + _HALF_LOG_2PI)).sum(-1)


def gaussian_kl(
    old_means_BD: Tensor, old_log_stds_BD: Tensor, means_BD: Tensor, log_stds_BD: Tensor
) -> Tensor:
    """Return the exact KL divergence KL(old, new) of each row."""
    ratios_BD = (2 * (old_log_stds_BD - log_stds_BD)).exp()
    shifts_BD = ((old_means_BD - means_BD) * (-log_stds_BD).exp()).square()
    return 0.5 * (ratios_BD + shifts_BD - 1 - ratios_BD.log()).sum(-1)
