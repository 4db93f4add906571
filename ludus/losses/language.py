"""Losses of language models: cross-entropy of tokens, DPO, and Tinker's policy gradients of tokens.

Shapes: B sequences, T tokens, V vocabulary; (...) is any shape of tokens, such as BT or all tokens in a row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def token_log_probs(logits_V: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target token: (...) from logits (..., V), in float32."""
    losses = functional.cross_entropy(
        logits_V.float().flatten(0, -2), targets.flatten(), reduction="none"
    )
    return -losses.view(targets.shape)


def sequence_log_probs(log_probs_K: Tensor, sequences_K: Tensor, num_sequences: int) -> Tensor:
    """Return the sum of the log-probabilities of each sequence; sequences_K says whose each token is."""
    return log_probs_K.new_zeros(num_sequences).index_add(0, sequences_K, log_probs_K)


def masked_cross_entropy(logits_V: Tensor, targets: Tensor, is_trained: Tensor) -> Tensor:
    """Return the mean cross-entropy of the targets that are trained on; 0 if there are none."""
    log_probs = token_log_probs(logits_V, targets)
    # A product would make NaN of a token that is impossible and not trained on.
    kept = torch.where(is_trained.bool(), log_probs, 0.0)
    return -kept.sum() / is_trained.sum().clamp_min(1)


def dpo_margins(
    chosen_B: Tensor, rejected_B: Tensor, reference_chosen_B: Tensor, reference_rejected_B: Tensor
) -> Tensor:
    """Return how much more each chosen answer gained over the reference model than the rejected one.

    All four are sums of the log-probabilities of the tokens of an answer.
    """
    return (chosen_B - reference_chosen_B) - (rejected_B - reference_rejected_B)


def dpo_loss(margins_B: Tensor, *, beta: float) -> Tensor:
    """Return the mean loss of direct preference optimisation (DPO) of pairs with these margins."""
    return -functional.logsigmoid(beta * margins_B).mean()


def cross_entropy(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Return the sum over tokens of weight times negative log-probability (Tinker's `cross_entropy`)."""
    return -(log_probs * weights).sum()


def importance_sampling(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """Return the sum over tokens of -ratio * advantage (Tinker's `importance_sampling`).

    The ratio is that of the probabilities under the model and under the one that sampled the token. A token
    of advantage 0, such as one of a prompt, contributes nothing, whatever its log-probabilities.
    """
    return -(_ratios(log_probs, old_log_probs, advantages) * advantages).sum()


def ppo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.8,
    clip_high: float = 1.2,
) -> Tensor:
    """Return the sum over tokens of the clipped surrogate loss (Tinker's `ppo`).

    A ratio outside of [clip_low, clip_high] gains nothing more in the direction of its advantage.
    """
    ratios = _ratios(log_probs, old_log_probs, advantages)
    clipped = ratios.clamp(clip_low, clip_high)
    return -torch.minimum(ratios * advantages, clipped * advantages).sum()


def _ratios(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """Return exp(new - old), and 1 without a gradient where the advantage is 0: inf * 0 would be NaN."""
    differences = torch.where(advantages == 0, 0.0, log_probs - old_log_probs)
    return differences.exp()
