"""Losses and estimators as pure functions from tensors to tensors; they import nothing else of ludus.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.losses.advantage import generalised_advantage as generalised_advantage
    from ludus.losses.distributions import (
        categorical_entropy as categorical_entropy,
        categorical_kl as categorical_kl,
        categorical_log_probs as categorical_log_probs,
        categorical_sample as categorical_sample,
        gaussian_entropy as gaussian_entropy,
        gaussian_kl as gaussian_kl,
        gaussian_log_probs as gaussian_log_probs,
        masked_logits as masked_logits,
        multi_categorical_entropy as multi_categorical_entropy,
        multi_categorical_log_probs as multi_categorical_log_probs,
        multi_categorical_sample as multi_categorical_sample,
    )
    from ludus.losses.dqn import (
        dueling_q as dueling_q,
        td_errors as td_errors,
        td_loss as td_loss,
        td_targets as td_targets,
    )
    from ludus.losses.iqn import quantile_huber_loss as quantile_huber_loss
    from ludus.losses.ppo import (
        approximate_kl as approximate_kl,
        clip_fraction as clip_fraction,
        clipped_policy_loss as clipped_policy_loss,
        kl_policy_loss as kl_policy_loss,
        next_kl_beta as next_kl_beta,
        normalised as normalised,
        ppo_loss as ppo_loss,
        value_loss as value_loss,
    )
    from ludus.losses.sac import (
        actor_loss as actor_loss,
        critic_loss as critic_loss,
        critic_targets as critic_targets,
        squashed_sample as squashed_sample,
        temperature_loss as temperature_loss,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
