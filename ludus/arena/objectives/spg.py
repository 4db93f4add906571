"""Stackelberg policy gradient: agents move in a sequence, and leaders anticipate the followers' response.

The loss of an agent is minus its return, estimated so that all its derivatives are right, including mixed
ones in the parameters of several agents (Loaded DiCE, Farquhar et al., 2019). Turns come one after another,
simultaneous agents in the order of their names. A turn contributes its advantage times the probability of
its action, and in second derivatives the probabilities of all turns before it, which led there; a turn of
step t is weighted by gamma^t. The variants whose name begins with p clip the probability ratio as PPO does.

Shapes: N rows, E episodes, T steps, A agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.arena.agents.combined import (
    ACTION,
    ADVANTAGE,
    LOG_PROB,
    VALUE_TARGET,
    CombinedAgents,
    make_actor,
    make_critic,
)
from ludus.arena.libraries import ReinforceLoss, TensorDict, TensorDictBase
from ludus.arena.objectives.inverse_hessian import InverseHessianSection, inverse_product
from ludus.arena.objectives.objective import (
    Objective,
    has_turn,
    is_there,
    standardised,
    turns_of,
)
from ludus.arena.objectives.stackelberg import (
    Directions,
    Groups,
    Losses,
    Sos,
    lookahead_directions,
    own_gradients,
    stackelberg_directions,
)
from ludus.arena.playing.distribution import TurnDistribution
from ludus.arena.rl_config import RlParameters
from ludus.arena.rules import SubParameters
from ludus.config.base import NonNegativeFloat, PositiveFloat
from ludus.losses.ppo import clipped_gains

OpenShare = Annotated[float, Field(gt=0, lt=1)]


class SpgVariant(SubParameters):
    """Leaders anticipate the followers' best response."""

    kind: Literal["spg"]
    """Leaders follow the total derivative of their loss, with followers at their optimum."""
    inverse_hessian: InverseHessianSection
    """How the inverse of a follower's Hessian is applied."""


class PspgVariant(SubParameters):
    """Leaders anticipate the followers' best response; ratios are clipped."""

    kind: Literal["pspg"]
    """As spg, with PPO's clipped ratios."""
    inverse_hessian: InverseHessianSection
    """How the inverse of a follower's Hessian is applied."""
    clip: OpenShare
    """The clip range of the probability ratio, as a distance from 1."""


class LolaVariant(SubParameters):
    """LOLA: leaders anticipate one gradient step of their followers."""

    kind: Literal["lola"]
    """Learning with opponent-learning awareness."""
    lookahead_rate: PositiveFloat
    """The learning rate of the followers' anticipated step."""


class PolaVariant(SubParameters):
    """LOLA with clipped ratios."""

    kind: Literal["pola"]
    """As lola, with PPO's clipped ratios."""
    lookahead_rate: PositiveFloat
    """The learning rate of the followers' anticipated step."""
    clip: OpenShare
    """The clip range of the probability ratio, as a distance from 1."""


class SosVariant(SubParameters):
    """SOS: as lola, with shaping weakened so that agents do not leave stable fixed points."""

    kind: Literal["sos"]
    """Stable opponent shaping."""
    lookahead_rate: PositiveFloat
    """The learning rate of the followers' anticipated step."""
    scaling: OpenShare
    """The share of the unshaped direction's length that must remain along it."""
    threshold: OpenShare
    """The norm of all gradients below which the shaping fades, with the square of the norm."""


class PsosVariant(SubParameters):
    """As sos, with PPO's clipped ratios."""

    kind: Literal["psos"]
    """Stable opponent shaping, with PPO's clipped ratios."""
    lookahead_rate: PositiveFloat
    """The learning rate of the followers' anticipated step."""
    scaling: OpenShare
    """The share of the unshaped direction's length that must remain along it."""
    threshold: OpenShare
    """The norm of all gradients below which the shaping fades, with the square of the norm."""
    clip: OpenShare
    """The clip range of the probability ratio, as a distance from 1."""


VariantSection = Annotated[
    SpgVariant | PspgVariant | LolaVariant | PolaVariant | SosVariant | PsosVariant,
    Field(discriminator="kind"),
]


class SpgParameters(SubParameters):
    """The parameters of Stackelberg policy gradients besides `rl`."""

    variant: VariantSection
    """How leaders anticipate their followers: spg, lola or sos, or with clipped ratios pspg, pola or psos."""
    stackelberg_sequence: list[Annotated[list[str], Field(min_length=1)]] | None
    """The Stackelberg sequence: groups of agents from the leaders to the last followers, each agent once;
    null: the order of the protocol, verifiers and then provers.
    """
    value_coef: PositiveFloat
    """The coefficient of the value loss."""
    entropy_coef: NonNegativeFloat
    """The coefficient of the entropy bonus in the loss of each agent."""
    normalise_advantage: bool
    """Normalise the advantages of each agent, over a minibatch, to mean 0 and standard deviation 1."""


class Spg(Objective, ReinforceLoss):
    """Computes the direction of each agent, and returns a loss whose gradient it is."""

    def __init__(
        self,
        agents: CombinedAgents,
        rl: RlParameters,
        params: SpgParameters,
        *,
        groups: Groups,
        num_steps: int,
    ) -> None:
        """`groups` are the agents that learn, leaders first; each `num_steps` consecutive rows belong
        together.

        With several groups, an episode begins with the first of these steps.
        """
        super().__init__(
            make_actor(agents),
            make_critic(agents),
            loss_critic_type=rl.loss_critic_type,
            functional=False,
        )
        self.set_arena_keys()
        self.params, self.num_steps = params, num_steps
        self.groups = [list(group) for group in groups]
        self.clip: float | None = getattr(params.variant, "clip", None)
        # With one group no second derivatives are used, and the gradient is not discounted, as usual.
        self.discount = rl.gamma if len(self.groups) > 1 else 1.0

    @property
    def agents(self) -> CombinedAgents:
        """The agents that learn."""
        found: CombinedAgents = self.actor_network[0].agents
        return found

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the terms of the loss, the size of the response, and the share of shaping in it."""
        with torch.enable_grad():
            td = tensordict.copy()
            decisions, messages, values = self.agents.policy_and_value(td)
            losses = self.losses(td, turns_of(td, decisions, messages))
            error = self.error(values, td[VALUE_TARGET])
            terms = self._moved(losses)
        terms["loss_critic"] = self.params.value_coef * self.averaged("loss_critic", error, td)
        return TensorDict(terms)

    def losses(self, td: TensorDictBase, now: TurnDistribution) -> Losses:
        """Return a number for each learning agent, all derivatives of which are estimates."""
        log_prob_NA, turns_NA = now.log_prob(td[ACTION]), has_turn(td)
        advantage_NA1 = td[ADVANTAGE]
        if self.params.normalise_advantage:
            advantage_NA1 = standardised(advantage_NA1, is_there(td).expand_as(turns_NA))
        log_prob_ET, before_ET = self._in_turn(log_prob_NA), self._in_turn(td[LOG_PROB])
        past_ET = log_prob_ET.cumsum(-1) - log_prob_ET
        # 1, with the derivatives of the probability of all earlier actions.
        led_here_ET = (past_ET - past_ET.detach()).exp()
        reference_ET = log_prob_ET.detach() if self.clip is None else before_ET
        ratio_ET = (log_prob_ET - reference_ET).exp()
        entropy_NA, found = now.entropy(), {}
        for name in self._learning:
            index = self.agents.names.index(name)
            weight_ET = self._in_turn(torch.where(turns_NA, advantage_NA1[:, index], 0.0))
            if self.discount != 1:
                weight_ET = weight_ET * self._discounts(weight_ET)
            if self.clip is None:
                gain_ET = ratio_ET * weight_ET
            else:
                clipped_ET = ratio_ET.clamp(1 - self.clip, 1 + self.clip)
                gain_ET = clipped_gains(ratio_ET, clipped_ET, weight_ET)
            gain_ET = gain_ET + (led_here_ET - 1.0) * (gain_ET - gain_ET.detach())
            bonus = self.params.entropy_coef * entropy_NA[:, index].sum()
            found[name] = -(gain_ET.sum() + bonus) / len(gain_ET)
        return found

    def _in_turn(self, values_NA: Tensor) -> Tensor:
        """Return the turns of each episode, one after another."""
        return values_NA.reshape(-1, self.num_steps * values_NA.shape[-1])

    def _discounts(self, turns_ET: Tensor) -> Tensor:
        """Return the discount of each turn in the return: an advantage is discounted to its own step."""
        steps_T = torch.arange(self.num_steps, device=turns_ET.device, dtype=turns_ET.dtype)
        found: Tensor = self.discount**steps_T
        return found.repeat_interleave(turns_ET.shape[-1] // self.num_steps)

    @property
    def _learning(self) -> list[str]:
        return [name for group in self.groups for name in group]

    def _moved(self, losses: Losses) -> dict[str, Tensor]:
        """Return a term whose value is that of the losses, and whose gradient is each agent's direction."""
        parameters = {name: _parameters(self.agents, name) for name in self._learning}
        fields = own_gradients(losses, parameters)
        directions, logged = self._directions(losses, parameters, fields)
        moved = torch.stack([loss.detach() for loss in losses.values()]).sum()
        square = torch.zeros_like(moved)
        for name, own in parameters.items():
            pieces = directions[name].split([one.numel() for one in own])
            for one, piece in zip(own, pieces, strict=True):
                moved = moved + ((one - one.detach()) * piece.view_as(one)).sum()
            response = directions[name] - fields[name].detach()
            square = square + response.dot(response)
        return {"loss_objective": moved, "response_norm": square.sqrt(), **logged}

    def _directions(
        self, losses: Losses, parameters: dict[str, list[Tensor]], fields: Directions
    ) -> tuple[Directions, dict[str, Tensor]]:
        variant, groups = self.params.variant, self.groups
        if isinstance(variant, SpgVariant | PspgVariant):
            inverse = variant.inverse_hessian
            found = stackelberg_directions(
                losses,
                parameters,
                fields,
                groups,
                lambda product, vector: inverse_product(inverse, product, vector),
            )
            return found, {}
        sos = None
        if isinstance(variant, SosVariant | PsosVariant):
            sos = Sos(variant.scaling, variant.threshold)
        followers = {
            name: [after for later in groups[level + 1 :] for after in later]
            for level, group in enumerate(groups)
            for name in group
        }
        rate = variant.lookahead_rate
        found, share = lookahead_directions(
            losses, parameters, fields, followers, rate=rate, sos=sos
        )
        return found, {} if sos is None else {"shaping_share": share}


def learning_groups(
    sequence: Sequence[Sequence[str]], agents: CombinedAgents, never: Sequence[str]
) -> list[list[str]]:
    """Return the groups of a sequence without agents that never learn, which need no anticipation."""
    kept = [
        [name for name in group if name not in never and _parameters(agents, name)]
        for group in sequence
    ]
    return [group for group in kept if group]


def _parameters(agents: CombinedAgents, name: str) -> list[Tensor]:
    """Return the trainable parameters of an agent: a part whose factor is 0 is fixed."""
    agent = agents.member(name)
    still = [agent.get_submodule(part) for part, rate in agent.rates().items() if rate == 0]
    fixed = {one for part in still for one in part.parameters()}
    return [one for one in agent.parameters() if one.requires_grad and one not in fixed]
