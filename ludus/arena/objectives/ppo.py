"""Proximal policy optimization for several agents (IPPO): TorchRL's clipped and KL-penalised losses.

TorchRL's own forward causes host syncs (is an entropy finite, is the KL too large), calls a body once for
the policy and once for the value, and averages over agents that had no turn. Here `forward` is ludus's own;
keys, buffers and value estimators are those of TorchRL.

Shapes: N rows, A agents.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.distributions import kl_divergence

from ludus.arena.agents.combined import (
    ACTION,
    ADVANTAGE,
    LOG_PROB,
    LOGITS,
    VALUE,
    VALUE_TARGET,
    CombinedAgents,
    make_actor,
    make_critic,
)
from ludus.arena.libraries import ClipPPOLoss, KLPENPPOLoss, TensorDict, TensorDictBase
from ludus.arena.objectives.objective import Objective, has_turn, standardised, turns_of
from ludus.arena.playing.distribution import TurnDistribution
from ludus.arena.rl_config import RlParameters
from ludus.arena.rules import SubParameters
from ludus.config.base import NonNegativeFloat, PositiveFloat
from ludus.losses.ppo import adapted_kl_beta, clipped_gains, value_errors

_FARTHEST = 1e6
"""The bound of beta's growth and decay, as a factor of its initial value: it could not return from 0 or
infinity."""


class ClipParameters(SubParameters):
    """The clipped PPO objective."""

    kind: Literal["clip"]
    """Clip the probability ratio: no gradient moves it further than allowed."""
    clip: Annotated[float, Field(gt=0, lt=1)]
    """The clip range of the probability ratio, as a distance from 1."""


class KlPenaltyParameters(SubParameters):
    """The PPO objective with a KL penalty."""

    kind: Literal["kl_penalty"]
    """Add the KL divergence from the policy that acted to the loss, times the KL coefficient beta. Each
    update adapts beta by the divergence after the earlier updates of the iteration.
    """
    target: PositiveFloat
    """The target of the KL divergence."""
    beta: PositiveFloat
    """The initial KL coefficient."""
    increment: Annotated[float, Field(ge=1)]
    """The factor of beta when the divergence is more than 1.5 times its target."""
    decrement: Annotated[float, Field(gt=0, le=1)]
    """The factor of beta when the divergence is less than its target divided by 1.5."""


PpoLossSection = Annotated[ClipParameters | KlPenaltyParameters, Field(discriminator="kind")]


class PpoParameters(SubParameters):
    """The parameters of PPO besides `rl`."""

    loss: PpoLossSection
    """The PPO objective: clip or kl_penalty."""
    value_coef: PositiveFloat
    """The coefficient of the value loss."""
    entropy_coef: NonNegativeFloat
    """The coefficient of the entropy bonus, against becoming deterministic too soon."""
    normalise_advantage: bool
    """Normalise the advantages of each agent, over its own turns in a minibatch, to mean 0 and standard
    deviation 1."""
    value_clip: PositiveFloat | None
    """The clip range of a value around the one before the updates; null does not clip."""


class _Ppo(Objective):
    """The terms that both losses have, and their means."""

    def __init__(
        self,
        agents: CombinedAgents,
        rl: RlParameters,
        params: PpoParameters,
        **bound: float,
    ) -> None:
        super().__init__(
            make_actor(agents),
            make_critic(agents),
            entropy_coeff=params.entropy_coef,
            critic_coeff=params.value_coef,
            loss_critic_type=rl.loss_critic_type,
            normalize_advantage=params.normalise_advantage,
            normalize_advantage_exclude_dims=(-2,),
            functional=False,
            **bound,
        )
        self.set_arena_keys()
        self.value_clip = params.value_clip

    def _looked_at(self, td: TensorDictBase) -> tuple[TurnDistribution, Tensor, Tensor, Tensor]:
        """Return the policy, and (N, A, 1) log ratios, advantages and values."""
        advantage_NA1 = td[ADVANTAGE]
        if self.normalize_advantage and advantage_NA1.numel() > 1:
            advantage_NA1 = standardised(advantage_NA1, has_turn(td))
        decisions, messages, value_NA1 = self.actor_network[0].agents.policy_and_value(td)
        now = turns_of(td, decisions, messages)
        log_ratio_NA1 = (now.log_prob(td[ACTION]) - td[LOG_PROB]).unsqueeze(-1)
        return now, log_ratio_NA1, advantage_NA1, value_NA1

    def _means(
        self,
        td: TensorDictBase,
        objective: Tensor,
        now: TurnDistribution,
        value_NA1: Tensor,
        **logged: Tensor,
    ) -> TensorDict:
        """Return the means of the terms of the loss, and of what is logged besides."""
        before = value_NA1 if self.value_clip is None else td[VALUE]
        entropy = -self.entropy_coeff * now.entropy()
        error = value_errors(value_NA1, before, td[VALUE_TARGET], self.value_clip, self.error)
        terms = {
            "loss_objective": objective,
            "loss_entropy": entropy,
            "loss_critic": self.critic_coeff * error,
        }
        means = {name: self.averaged(name, term, td) for name, term in terms.items()}
        return TensorDict(means | {name: _of_turns(one, td) for name, one in logged.items()})


def _of_turns(values: Tensor, td: TensorDictBase) -> Tensor:
    """Return the mean over the agents and rows with a turn; the others add 0."""
    turns = has_turn(td)
    return values.detach().mean() * (turns.numel() / turns.sum().clamp_min(1))


class ClipPpo(_Ppo, ClipPPOLoss):
    """The clipped loss, masked by turns."""

    compiles = True

    def __init__(self, agents: CombinedAgents, rl: RlParameters, params: PpoParameters) -> None:
        assert isinstance(params.loss, ClipParameters)
        super().__init__(agents, rl, params, clip_epsilon=params.loss.clip)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the terms of the loss."""
        now, log_ratio, advantage, value = self._looked_at(tensordict)
        clipped = log_ratio.clamp((-self.clip_epsilon).log1p(), self.clip_epsilon.log1p())
        loss = -clipped_gains(log_ratio.exp(), clipped.exp(), advantage)
        logged = {"kl_approx": -log_ratio, "clip_fraction": (clipped != log_ratio).float()}
        return self._means(tensordict, loss, now, value, **logged)


class KlPenaltyPpo(_Ppo, KLPENPPOLoss):
    """The KL-penalised loss, masked by turns; beta is adapted on the device."""

    compiles = True

    def __init__(self, agents: CombinedAgents, rl: RlParameters, params: PpoParameters) -> None:
        loss = params.loss
        assert isinstance(loss, KlPenaltyParameters)
        super().__init__(
            agents,
            rl,
            params,
            dtarg=loss.target,
            beta=loss.beta,
            increment=loss.increment,
            decrement=loss.decrement,
        )
        self.reach = loss.beta / _FARTHEST, loss.beta * _FARTHEST

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the terms of the loss."""
        before = turns_of(tensordict, *[tensordict[key] for key in LOGITS.values()])
        now, log_ratio, advantage, value = self._looked_at(tensordict)
        kl = kl_divergence(before, now).unsqueeze(-1)
        # A copy, as beta is adapted below, before the gradient is computed.
        beta = self.beta.clone()
        loss = -(log_ratio.exp() * advantage - beta * kl)
        found = self._means(tensordict, loss, now, value, kl_approx=-log_ratio)
        found["kl"] = self.averaged("kl", kl.detach(), tensordict)
        self._steer(found["kl"])
        return found

    def _steer(self, kl: Tensor) -> None:
        with torch.no_grad():
            factors = {"increment": self.increment, "decrement": self.decrement}
            beta = adapted_kl_beta(self.beta, kl, target=self.dtarg, **factors)
            self.beta.copy_(beta.clamp(*self.reach))
