"""REINFORCE for several agents: the log-probability of an action times its return or advantage.

Each agent is weighted by its own rewards alone. TorchRL's loss always calls a critic, and averages over
agents that had no turn; here the critic is called only where its advantages are used.

Shapes: B envs, T steps, N rows, A agents.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from ludus.arena.agents.combined import (
    ACTION,
    ADVANTAGE,
    DONE,
    REWARD,
    VALUE_TARGET,
    CombinedAgents,
    make_actor,
    make_critic,
)
from ludus.arena.libraries import ReinforceLoss, TensorDict, TensorDictBase
from ludus.arena.objectives.objective import Objective, has_turn, standardised, turns_of
from ludus.arena.rl_config import RlParameters
from ludus.arena.rules import SubParameters
from ludus.config.base import NonNegativeFloat, PositiveFloat


class RewardToGoParameters(SubParameters):
    """The weight of an action is its reward-to-go, without a critic."""

    kind: Literal["reward_to_go"]
    """The discounted rewards from the step of the action to the end of the episode."""


class AdvantageParameters(SubParameters):
    """The weight of an action is its advantage, by a critic."""

    kind: Literal["advantage"]
    """Generalised advantage estimation, by the critic's values and `rl.gae_lambda`."""
    value_coef: PositiveFloat
    """The coefficient of the value loss."""


WeightSection = Annotated[RewardToGoParameters | AdvantageParameters, Field(discriminator="kind")]


class ReinforceParameters(SubParameters):
    """The parameters of REINFORCE besides `rl`."""

    weight: WeightSection
    """The weight of an action: reward_to_go, or a critic's advantage."""
    entropy_coef: NonNegativeFloat
    """The coefficient of the entropy bonus, against becoming deterministic too soon."""
    normalise_weight: bool
    """Normalise the weights of each agent, over its own turns in a minibatch, to mean 0 and standard
    deviation 1."""


class RewardToGo(nn.Module):
    """Reward-to-go in place of an advantage estimator."""

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, rollouts: TensorDictBase) -> TensorDictBase:
        """Write the weights (B, T, A, 1) into rollouts."""
        rewards_BTA1, done_BTA1 = rollouts["next", *REWARD], rollouts["next", *DONE]
        to_go, found = torch.zeros_like(rewards_BTA1[:, 0]), []
        for step in reversed(range(rewards_BTA1.shape[1])):
            later = torch.where(done_BTA1[:, step], 0.0, to_go)
            to_go = rewards_BTA1[:, step] + self.gamma * later
            found.append(to_go)
        return rollouts.set(ADVANTAGE, torch.stack(found[::-1], 1))


class Reinforce(Objective, ReinforceLoss):
    """TorchRL's REINFORCE, masked by turns, with or without a critic."""

    compiles = True

    def __init__(
        self, agents: CombinedAgents, rl: RlParameters, params: ReinforceParameters
    ) -> None:
        super().__init__(
            make_actor(agents),
            make_critic(agents),
            loss_critic_type=rl.loss_critic_type,
            functional=False,
        )
        self.set_arena_keys()
        self.value_coef: float = getattr(params.weight, "value_coef", 0.0)
        self.asks_values = params.weight.kind == "advantage"
        self.entropy_coef = params.entropy_coef
        self.is_standardised = params.normalise_weight

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the terms of the loss."""
        td, agents = tensordict, self.actor_network[0].agents
        weight = td[ADVANTAGE]
        if self.is_standardised:
            weight = standardised(weight, has_turn(td))
        ask = agents.policy_and_value if self.asks_values else agents.policy
        decisions, messages, *values = ask(td)
        now = turns_of(td, decisions, messages)
        terms = {
            "loss_objective": -now.log_prob(td[ACTION]).unsqueeze(-1) * weight,
            "loss_entropy": -self.entropy_coef * now.entropy(),
        }
        for value in values:
            terms["loss_critic"] = self.value_coef * self.error(value, td[VALUE_TARGET])
        return TensorDict({name: self.averaged(name, term, td) for name, term in terms.items()})
