"""Proximal policy optimisation for several agents (IPPO): TorchRL's clipped and KL-penalised losses.

TorchRL's own forward waits for the device in places (is an entropy finite, is the KL too large), asks a body
once for the policy and once for the value, and averages over agents that had no turn. The methods here
replace those places and nothing else.

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
"""How many times larger or smaller beta may become than it began: at 0 or at infinity it would stay."""


class ClipParameters(SubParameters):
    """An update is kept near the policy that acted by clipping ratios."""

    kind: Literal["clip"]
    """Take no gradient that would move the ratio of probabilities further than allowed."""
    clip: Annotated[float, Field(gt=0, lt=1)]
    """How far an update may move the probability of an action, as a ratio from 1."""


class KlPenaltyParameters(SubParameters):
    """An update is kept near the policy that acted by a penalty on the KL divergence from it."""

    kind: Literal["kl_penalty"]
    """Add the KL divergence to the loss, times a factor beta. Each update adapts it by the divergence that
    the updates before it in the iteration have led to."""
    target: PositiveFloat
    """The KL divergence that beta steers to."""
    beta: PositiveFloat
    """The factor of the KL divergence at the beginning."""
    increment: Annotated[float, Field(ge=1)]
    """What beta is multiplied by when the divergence is more than 1.5 times its target."""
    decrement: Annotated[float, Field(gt=0, le=1)]
    """What beta is multiplied by when the divergence is less than its target divided by 1.5."""


PpoLossSection = Annotated[ClipParameters | KlPenaltyParameters, Field(discriminator="kind")]


class PpoParameters(SubParameters):
    """What PPO reads besides `rl`."""

    loss: PpoLossSection
    """How an update is kept near the policy that acted: clip or kl_penalty."""
    value_coef: PositiveFloat
    """How much the value's loss counts beside the policy's."""
    entropy_coef: NonNegativeFloat
    """How much the policy's entropy counts, against becoming deterministic too soon."""
    normalise_advantage: bool
    """Bring the advantages of each agent, over its own turns in a minibatch, to mean 0 and deviation 1."""
    value_clip: PositiveFloat | None
    """How far a value may move from the one before the updates; null lets it go."""


class _SharedLook(Valuing):
    """Stands where TorchRL asks the critic: where the policy's look has found the values, it takes those."""

    only_looks = True

    def forward(self, td: TensorDictBase) -> TensorDictBase:
        """Write the values."""
        found = td.get(_FOUND, None)
        return super().forward(td) if found is None else td.set(VALUE, found)


class _Ppo(Objective):
    """The places of TorchRL's PPO that are replaced, for both losses."""

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
        """Return the loss of the values, a number for each row and agent."""
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
        return loss  # averaged below, when the name of the term is known

    def _averaged(self, terms: TensorDictBase, td: TensorDictBase) -> TensorDict:
        found = {name: terms[name] for name in terms.keys() if name.startswith("loss_")}  # noqa: SIM118
        means = {name: self.averaged(name, term, td) for name, term in found.items()}
        told = {name: terms.get(name, None) for name in ("kl_approx", "clip_fraction")}
        means |= {name: _of_turns(one, td) for name, one in told.items() if one is not None}
        return TensorDict(means)


def _of_turns(mean: Tensor, td: TensorDictBase) -> Tensor:
    """Return a mean over all agents and rows as one over those with a turn; the others added nothing."""
    turns = has_turn(td)
    return mean.mean() * (turns.numel() / turns.sum().clamp_min(1))


def _networks(agents: CombinedAgents) -> tuple[nn.Module, nn.Module]:
    return make_actor(agents), _SharedLook(agents)


class ClipPpo(_Ppo, ClipPPOLoss):
    """TorchRL's clipped loss, for turns."""

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
        # By name: TorchRL gives every class of its kind a forward of its own.
        return self._averaged(ClipPPOLoss.forward(self, tensordict), tensordict)


class KlPenaltyPpo(_Ppo, KLPENPPOLoss):
    """TorchRL's KL-penalised loss, for turns; the factor of the penalty is steered on the device."""

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
        # A copy, for it is steered below, before the gradient is computed.
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
            # In the first update of an iteration the policy is still the one that acted: that tells nothing.
            has_moved = kl > _UNMOVED
            down = torch.where((kl < self.dtarg / 1.5) & has_moved, self.decrement, 1.0)
            self.beta.mul_(up * down).clamp_(*self.reach)
