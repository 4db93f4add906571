"""Proximal policy optimization for several agents (IPPO): TorchRL's clipped and KL-penalised losses.

TorchRL's own forward causes host syncs (is an entropy finite, is the KL too large), calls a body once for
the policy and once for the value, and averages over agents that had no turn. The methods here replace those
places and nothing else.

Shapes: N rows, A agents.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.distributions import Distribution, kl_divergence

from ludus.arena.agents.combined import (
    LOGITS,
    VALUE,
    CombinedAgents,
    Valuing,
    make_actor,
)
from ludus.arena.libraries import (
    ClipPPOLoss,
    KLPENPPOLoss,
    TensorDict,
    TensorDictBase,
    distance_loss,
)
from ludus.arena.objectives.objective import Objective, has_turn, standardised
from ludus.arena.parameters import RlParameters, SubParameters
from ludus.config.base import NonNegativeFloat, PositiveFloat

_FOUND = ("agents", "found_value")
_UNMOVED = 1e-6
"""A divergence below this is rounding: the policy has not been updated yet."""
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


class _SharedLook(Valuing):
    """The critic for TorchRL: it reuses the values of the policy's forward pass, where they exist."""

    only_looks = True

    def forward(self, td: TensorDictBase) -> TensorDictBase:
        """Write the values."""
        found = td.get(_FOUND, None)
        return super().forward(td) if found is None else td.set(VALUE, found)


class _Ppo(Objective):
    """The overridden methods of TorchRL's PPO, for both losses."""

    agents: CombinedAgents

    def _keep(self, params: PpoParameters) -> None:
        self.set_arena_keys()
        self.value_clip = params.value_clip

    def _get_cur_log_prob(
        self, td: TensorDictBase, params: object = None
    ) -> tuple[Tensor, Distribution, bool]:
        decisions, messages, values = self.actor_network[0].agents.policy_and_value(td)
        for key, logits in zip(LOGITS.values(), (decisions, messages), strict=True):
            td.set(key, logits)
        td.set(_FOUND, values)
        distribution = self.actor_network.build_dist_from_params(td)
        return distribution.log_prob(td[self.tensor_keys.action]), distribution, False

    def _get_entropy(self, dist: Distribution, adv_shape: torch.Size) -> Tensor:
        return dist.entropy().unsqueeze(-1)

    def _standardize_advantage(self, advantage: Tensor, tensordict: TensorDictBase) -> Tensor:
        return standardised(advantage, has_turn(tensordict))

    def loss_critic(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor | None, None]:
        """Return the value loss, a number for each row and agent."""
        keys = self.tensor_keys
        target, before = tensordict[keys.value_target], tensordict.get(keys.value, None)
        value = self.critic_network(tensordict)[keys.value]
        loss = distance_loss(target, value, loss_function=self.loss_critic_type)
        if self.value_clip is not None:
            moved = (value - before).clamp(-self.value_clip, self.value_clip)
            clipped = distance_loss(target, before + moved, loss_function=self.loss_critic_type)
            loss = torch.maximum(loss, clipped)
        return self.critic_coeff * loss, None, None

    def _reduce_loss(self, loss: Tensor, *args: object, **keywords: object) -> Tensor:
        return loss  # averaged later, when the name of the term is known

    def _averaged(self, terms: TensorDictBase, td: TensorDictBase) -> TensorDict:
        found = {name: terms[name] for name in terms.keys() if name.startswith("loss_")}  # noqa: SIM118
        means = {name: self.averaged(name, term, td) for name, term in found.items()}
        told = {name: terms.get(name, None) for name in ("kl_approx", "clip_fraction")}
        means |= {name: _of_turns(one, td) for name, one in told.items() if one is not None}
        return TensorDict(means)


def _of_turns(mean: Tensor, td: TensorDictBase) -> Tensor:
    """Return a mean over all agents and rows as one over those with a turn; the others added 0."""
    turns = has_turn(td)
    return mean.mean() * (turns.numel() / turns.sum().clamp_min(1))


def _networks(agents: CombinedAgents) -> tuple[nn.Module, nn.Module]:
    return make_actor(agents), _SharedLook(agents)


class ClipPpo(_Ppo, ClipPPOLoss):
    """TorchRL's clipped loss, masked by turns."""

    compiles = True

    def __init__(self, agents: CombinedAgents, rl: RlParameters, params: PpoParameters) -> None:
        actor, critic = _networks(agents)
        assert isinstance(params.loss, ClipParameters)
        super().__init__(
            actor,
            critic,
            clip_epsilon=params.loss.clip,
            entropy_coeff=params.entropy_coef,
            critic_coeff=params.value_coef,
            loss_critic_type=rl.loss_critic_type,
            normalize_advantage=params.normalise_advantage,
            normalize_advantage_exclude_dims=(-2,),
            functional=False,
        )
        self._keep(params)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the terms of the loss."""
        # Called on the class: TorchRL wraps the forward of each of its classes.
        return self._averaged(ClipPPOLoss.forward(self, tensordict), tensordict)


class KlPenaltyPpo(_Ppo, KLPENPPOLoss):
    """TorchRL's KL-penalised loss, masked by turns; beta is adapted on the device."""

    compiles = True

    def __init__(self, agents: CombinedAgents, rl: RlParameters, params: PpoParameters) -> None:
        actor, critic = _networks(agents)
        assert isinstance(params.loss, KlPenaltyParameters)
        super().__init__(
            actor,
            critic,
            dtarg=params.loss.target,
            beta=params.loss.beta,
            increment=params.loss.increment,
            decrement=params.loss.decrement,
            entropy_coeff=params.entropy_coef,
            critic_coeff=params.value_coef,
            loss_critic_type=rl.loss_critic_type,
            normalize_advantage=params.normalise_advantage,
            normalize_advantage_exclude_dims=(-2,),
            functional=False,
        )
        self.reach = params.loss.beta / _FARTHEST, params.loss.beta * _FARTHEST
        self._keep(params)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the terms of the loss."""
        td = tensordict.copy()
        before = self.actor_network.build_dist_from_params(td)
        advantage = self._maybe_normalize_advantage(
            td[self.tensor_keys.advantage], td, update_norm=False
        )
        log_weight, now, kl_approx, _ = self._log_weight(td, adv_shape=advantage.shape[:-1])
        kl = kl_divergence(before, now).unsqueeze(-1)
        # A copy, as beta is adapted below, before the gradient is computed.
        beta = self.beta.clone()
        terms = {
            "loss_objective": -(log_weight.exp() * advantage - beta * kl),
            "loss_entropy": self._weighted_loss_entropy(self._get_entropy(now, kl.shape)),
            "loss_critic": self.loss_critic(td)[0],
        }
        means = {name: self.averaged(name, term, td) for name, term in terms.items()}
        mean_kl = self.averaged("kl", kl.detach(), td)
        self._steer(mean_kl)
        told = {"kl": mean_kl, "kl_approx": _of_turns(kl_approx.detach(), td)}
        return TensorDict({**means, **told})

    def _steer(self, kl: Tensor) -> None:
        with torch.no_grad():
            up = torch.where(kl > 1.5 * self.dtarg, self.increment, 1.0)
            # In the first update of an iteration the policy is still the one that acted, so its KL is
            # uninformative.
            has_moved = kl > _UNMOVED
            down = torch.where((kl < self.dtarg / 1.5) & has_moved, self.decrement, 1.0)
            self.beta.mul_(up * down).clamp_(*self.reach)
