"""Objective: the base class of loss modules, TorchRL's LossModule with the keys of rollouts and the masks.

A policy term is averaged over the agents and steps that had a turn, a value term over the steps in which an
agent was present, of episodes that were not over. Where everybody always has a turn these are TorchRL's own
means.
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
    MASKS,
    REWARD,
    TERMINATED,
    VALUE,
    VALUE_TARGET,
)
from ludus.arena.libraries import (
    GAE,
    LossModule,
    TensorDictBase,
    ValueEstimators,
    distance_loss,
)
from ludus.arena.playing.distribution import TurnDistribution
from ludus.core.errors import LudusError

VALUE_TERMS = ("loss_critic",)
"""The terms that are averaged over all agents that are present; the others over those that had a turn."""
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
"""The location in a rollout of each tensor that a loss of TorchRL reads, for its `set_keys`."""


class Objective(LossModule):
    """Base class of losses: derive it, alone or with a loss of TorchRL, and return terms `loss_...` from
    `forward`."""

    asks_values: bool = True
    """Whether it needs the agents' values."""
    compiles: ClassVar[bool] = False
    """Whether torch.compile is known to compile it as a whole, so that long runs may compile by default;
    set in each class, and not inherited.
    """

    def set_arena_keys(self) -> None:
        """Set TorchRL's keys to those of rollouts; for losses that derive one of its own."""
        known = {name for name in vars(self.default_keys) if not name.startswith("_")}
        known |= set(getattr(self.default_keys, "__dataclass_fields__", {}))
        self.set_keys(**{name: key for name, key in KEYS.items() if name in known})

    def make_value_estimator(
        self, value_type: ValueEstimators | None = None, **hyperparams: float
    ) -> LossModule:
        """Make the advantage estimator, with `gamma` and `lmbda`, on the values of `critic_network`."""
        inherited = super().make_value_estimator
        if inherited.__func__ is not LossModule.make_value_estimator:
            inherited(value_type, **hyperparams)
            return self
        if value_type is not ValueEstimators.GAE:
            raise LudusError(
                f"{type(self).__name__} can be given ValueEstimators.GAE, not {value_type}; for another,"
                " return a module of yours with the loss module"
            )
        if not isinstance(getattr(self, "critic_network", None), nn.Module):
            raise LudusError(
                f"{type(self).__name__} has no critic_network, whose values advantages are made of; set"
                " self.critic_network = ludus.make_critic(agents)"
            )
        estimator = GAE(value_network=self.critic_network, **hyperparams)
        known = ("value", "reward", "done", "terminated", "advantage", "value_target")
        estimator.set_keys(**{name: KEYS[name] for name in known})
        inherited(estimator)
        return self

    def error(self, values: Tensor, targets: Tensor) -> Tensor:
        """Return the error of each value, by `loss_critic_type`."""
        found: Tensor = distance_loss(targets, values, loss_function=self.loss_critic_type)
        return found

    def averaged(self, name: str, term: Tensor, td: TensorDictBase) -> Tensor:
        """Return the masked mean of a term (N, A) or (N, A, 1)."""
        if term.ndim == 0:
            return term
        counts = has_turn(td) if name not in VALUE_TERMS else is_there(td)
        return masked_mean(term.reshape(*td.batch_size, -1), counts)


def turns_of(td: TensorDictBase, decisions: Tensor, messages: Tensor) -> TurnDistribution:
    """Return the distribution of these logits, with the masks of the rows."""
    return TurnDistribution(decisions, messages, *[td[key] for key in MASKS.values()])


def has_turn(td: TensorDictBase) -> Tensor:
    """Return (..., A) who had a turn: could decide, or spoke."""
    agents = td["agents"]
    turns: Tensor = agents["decision_mask"] | agents["message_mask"].any(-1)
    return turns


def is_there(td: TensorDictBase) -> Tensor:
    """Return (..., A), or (..., 1) for all, who is still present in an episode that is not over."""
    found: Tensor | None = td.get(("agents", "there"), None)
    return td["mask"].unsqueeze(-1) if found is None else found


def standardised(values: Tensor, counts: Tensor) -> Tensor:
    """Return values (N, A, 1) normalised to mean 0 and standard deviation 1 per agent, over the rows that
    count."""
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
