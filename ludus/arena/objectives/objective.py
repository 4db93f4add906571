"""What every loss module of the arena is: one of TorchRL's that knows the keys of rollouts, and the masks.

A policy term is averaged over the agents and steps that had a turn, a value term over the steps in which
an agent was there, of episodes that were not over. Where everybody always has a turn these are TorchRL's
own means.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ludus.arena.agents.combined import (
    ACTION,
    ADVANTAGE,
    DONE,
    LOG_PROB,
    REWARD,
    TERMINATED,
    VALUE,
    VALUE_TARGET,
)
from ludus.arena.libraries import GAE, LossModule, TensorDictBase, ValueEstimators
from ludus.core.errors import LudusError

VALUE_TERMS = ("loss_critic",)
"""The terms that are averaged over all agents that are there; the others over those that had a turn."""
KEYS = {
    "action": ACTION,
    "sample_log_prob": LOG_PROB,
    "value": VALUE,
    "reward": REWARD,
    "done": DONE,
    "terminated": TERMINATED,
    "advantage": ADVANTAGE,
    "value_target": VALUE_TARGET,
}
"""Where each tensor that a loss of TorchRL reads is in a rollout, for its `set_keys`."""


class Objective(LossModule):
    """Derive it, beside a loss of TorchRL's or alone, and return terms `loss_...` from `forward`."""

    asks_values: bool = True
    """Whether it asks agents for their values; one that does not needs none of them."""
    compiles: ClassVar[bool] = False
    """Whether torch's compiler surely takes it whole, so that long runs may be compiled unasked; said in
    each class, and not inherited."""

    def set_arena_keys(self) -> None:
        """Tell TorchRL where in a rollout everything stands; for losses that derive one of its own."""
        known = {name for name in vars(self.default_keys) if not name.startswith("_")}
        known |= set(getattr(self.default_keys, "__dataclass_fields__", {}))
        self.set_keys(**{name: key for name, key in KEYS.items() if name in known})

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: float
    ) -> LossModule:
        """Make the estimator of advantages, with `gamma` and `lmbda`, of the values of `critic_network`."""
        inherited = super().make_value_estimator
        if inherited.__func__ is not LossModule.make_value_estimator:
            inherited(value_type, **hyperparams)
            return self
        if value_type is not ValueEstimators.GAE:
            raise LudusError(
                f"{type(self).__name__} can be given ValueEstimators.GAE, not {value_type}; for another,"
                " return a module of yours beside the loss module"
            )
        if not isinstance(getattr(self, "critic_network", None), nn.Module):
            raise LudusError(
                f"{type(self).__name__} has no critic_network, whose values advantages are made of; set"
                " self.critic_network = ludus.make_critic(agents)"
            )
        estimator = GAE(value_network=self.critic_network, **hyperparams)
        known = ("value", "reward", "done", "terminated", "advantage", "value_target")
        estimator.set_keys(**{name: KEYS[name] for name in known})
        self._value_estimator = estimator
        return self

    def averaged(self, name: str, term: Tensor, td: TensorDictBase) -> Tensor:
        """Return the mean of a term (N, A) or (N, A, 1) over what counts."""
        if term.ndim == 0:
            return term
        counts = has_turn(td) if name not in VALUE_TERMS else is_there(td)
        return masked_mean(term.reshape(*td.batch_size, -1), counts)


def has_turn(td: TensorDictBase) -> Tensor:
    """Return (..., A) who had a turn: could decide, or spoke."""
    agents = td["agents"]
    turns: Tensor = agents["decision_mask"] | agents["message_mask"].any(-1)
    return turns


def is_there(td: TensorDictBase) -> Tensor:
    """Return (..., A), or (..., 1) for all, who has not left an episode that goes on."""
    found: Tensor | None = td.get(("agents", "there"), None)
    return td["mask"].unsqueeze(-1) if found is None else found


def standardised(values: Tensor, counts: Tensor) -> Tensor:
    """Return values (N, A, 1) brought to mean 0 and deviation 1 for each agent, over the rows that count."""
    weights = counts.unsqueeze(-1).to(values.dtype)
    number = weights.sum(0, keepdim=True)
    mean = (values * weights).sum(0, keepdim=True) / number.clamp_min(1.0)
    squares = (((values - mean) * weights) ** 2).sum(0, keepdim=True)
    deviation = (squares / (number - 1.0).clamp_min(1.0)).sqrt()
    return (values - mean) / deviation.clamp_min(1e-6)


def masked_mean(values: Tensor, counts: Tensor) -> Tensor:
    """Return the mean of the values that count, 0 where none does."""
    weights = counts.expand_as(values).to(values.dtype)
    return torch.where(counts, values, 0.0).sum() / weights.sum().clamp_min(1.0)
