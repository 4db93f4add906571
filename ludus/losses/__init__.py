"""Losses and estimators as pure functions from tensors to tensors; they import nothing of ludus.

Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.losses.advantage import generalised_advantage
    from ludus.losses.distributions import (
        categorical_entropy,
        categorical_kl,
        categorical_log_probs,
        categorical_sample,
        gaussian_entropy,
        gaussian_kl,
        gaussian_log_probs,
        masked_logits,
        multi_categorical_entropy,
        multi_categorical_log_probs,
        multi_categorical_sample,
    )
    from ludus.losses.dqn import dueling_q, td_errors, td_loss, td_targets
    from ludus.losses.iqn import quantile_huber_loss
    from ludus.losses.ppo import (
        approximate_kl,
        clip_fraction,
        clipped_policy_loss,
        kl_policy_loss,
        next_kl_beta,
        normalised,
        ppo_loss,
        value_loss,
    )
    from ludus.losses.sac import (
        actor_loss,
        critic_loss,
        critic_targets,
        squashed_sample,
        temperature_loss,
    )

_WHERE = {
    "actor_loss": "ludus.losses.sac",
    "approximate_kl": "ludus.losses.ppo",
    "categorical_entropy": "ludus.losses.distributions",
    "categorical_kl": "ludus.losses.distributions",
    "categorical_log_probs": "ludus.losses.distributions",
    "categorical_sample": "ludus.losses.distributions",
    "clip_fraction": "ludus.losses.ppo",
    "clipped_policy_loss": "ludus.losses.ppo",
    "critic_loss": "ludus.losses.sac",
    "critic_targets": "ludus.losses.sac",
    "dueling_q": "ludus.losses.dqn",
    "gaussian_entropy": "ludus.losses.distributions",
    "gaussian_kl": "ludus.losses.distributions",
    "gaussian_log_probs": "ludus.losses.distributions",
    "generalised_advantage": "ludus.losses.advantage",
    "kl_policy_loss": "ludus.losses.ppo",
    "masked_logits": "ludus.losses.distributions",
    "multi_categorical_entropy": "ludus.losses.distributions",
    "multi_categorical_log_probs": "ludus.losses.distributions",
    "multi_categorical_sample": "ludus.losses.distributions",
    "next_kl_beta": "ludus.losses.ppo",
    "normalised": "ludus.losses.ppo",
    "ppo_loss": "ludus.losses.ppo",
    "quantile_huber_loss": "ludus.losses.iqn",
    "squashed_sample": "ludus.losses.sac",
    "td_errors": "ludus.losses.dqn",
    "td_loss": "ludus.losses.dqn",
    "td_targets": "ludus.losses.dqn",
    "temperature_loss": "ludus.losses.sac",
    "value_loss": "ludus.losses.ppo",
}

__all__ = [
    "actor_loss",
    "approximate_kl",
    "categorical_entropy",
    "categorical_kl",
    "categorical_log_probs",
    "categorical_sample",
    "clip_fraction",
    "clipped_policy_loss",
    "critic_loss",
    "critic_targets",
    "dueling_q",
    "gaussian_entropy",
    "gaussian_kl",
    "gaussian_log_probs",
    "generalised_advantage",
    "kl_policy_loss",
    "masked_logits",
    "multi_categorical_entropy",
    "multi_categorical_log_probs",
    "multi_categorical_sample",
    "next_kl_beta",
    "normalised",
    "ppo_loss",
    "quantile_huber_loss",
    "squashed_sample",
    "td_errors",
    "td_loss",
    "td_targets",
    "temperature_loss",
    "value_loss",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _WHERE:
            raise AttributeError(f"module 'ludus.losses' has no attribute '{name}'")
        value = getattr(importlib.import_module(_WHERE[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return list(__all__)
