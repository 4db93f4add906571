"""The protocol `zero_knowledge`: wraps another protocol, whose provers learn to reveal nothing beyond the
verdict.

A proof is zero-knowledge if a simulator that never met the prover could have produced it. So the seed seats
in each episode either the verifier of the base protocol or an adversarial verifier, which tries to make the
prover reveal more; the prover cannot tell which. In each round in which a prover answers, the simulator,
which reads the questions but no answer, predicts the answer.

Shapes: B episodes, A agents, C channels, W variants, K = 1 + C numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ludus.arena.protocol import NOTHING, ProtocolHandler, ProtocolSection, Turn
from ludus.arena.rules import AnyProtocolParameters
from ludus.config.base import NonNegativeFloat
from ludus.config.registry import find, register
from ludus.core.errors import ConfigError

ADVERSARY, SIMULATOR = "adversarial_verifier", "simulator"
_FOLLOWED = ("decides", "forced", "step", "side_rewards", "judged", "deciders", "speakers")
"""Methods that a base must inherit from ProtocolHandler, since its turns are redistributed."""


class ZeroKnowledgeParameters(AnyProtocolParameters):
    """A base protocol, and the rewards for predicting its provers."""

    base: ProtocolSection
    """The protocol that is made zero-knowledge, with all of its keys."""
    simulator_reward: NonNegativeFloat
    """The simulator's reward for each correctly predicted answer of a prover."""
    adversary_penalty: NonNegativeFloat
    """The adversarial verifier's penalty for each correctly predicted answer to it."""
    prover_simulated_reward: float
    """Each prover's reward for each correctly predicted answer, besides its reward in the base; 0.0 does
    not change the provers and only measures what they reveal.
    """


@register("protocol", "zero_knowledge")
class ZeroKnowledge(ProtocolHandler):
    """Splits each channel of the base in three: questions, answers, and simulated answers."""

    Config = ZeroKnowledgeParameters

    def __init__(self, params: ZeroKnowledgeParameters) -> None:
        """Raise ConfigError where the base cannot be played, or has no prover."""
        kind = params.base.kind
        try:
            self.base: ProtocolHandler = find("protocol", kind)(params.base)
        except ConfigError as error:
            raise ConfigError(f"'base': {error}") from None
        if isinstance(self.base, ZeroKnowledge):
            raise ConfigError(
                "'base.kind' is zero_knowledge itself; choose the protocol it wraps, such as nip"
            )
        if not self.base.prover_names:
            raise ConfigError(
                f"'base.kind' is {kind}, which has no prover whose knowledge could be kept; choose another"
                " protocol, such as nip"
            )
        if own := [name for name in _FOLLOWED if _is_own(self.base, name)]:
            raise ConfigError(
                f"'base.kind' is {kind}, whose {own[0]} is its own, which zero knowledge does not follow;"
                " choose a protocol that says who speaks when and what for, and nothing else"
            )
        self.gains = params
        super().__init__(self.base.params)

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Those of the base, then the adversarial verifier and the simulator."""
        return *self.base.agent_names, ADVERSARY, SIMULATOR

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """Those of the base: the adversarial verifier asks, and decides nothing."""
        return self.base.verifier_names

    @property
    def prover_names(self) -> tuple[str, ...]:
        """Those of the base."""
        return self.base.prover_names

    @property
    def prover_goals(self) -> Mapping[str, int]:
        """Those of the base."""
        return self.base.prover_goals

    @property
    def message_channel_names(self) -> tuple[str, ...]:
        """For each channel of the base its questions, then of each the answers, then those simulated."""
        asked = self.base.message_channel_names
        return *asked, *map(_answers, asked), *map(_simulated, asked)

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """Readers of a channel of the base read questions and answers; the simulator reads no answer."""
        seen = {
            name: (*channels, *map(_answers, channels))
            for name, channels in self.base.agent_channel_visibility.items()
        }
        asked = self.base.message_channel_names
        seen[ADVERSARY] = seen[self.verifier_names[0]]
        seen[SIMULATOR] = (*asked, *map(_simulated, asked))
        return seen

    @property
    def stackelberg_sequence(self) -> tuple[tuple[str, ...], ...]:
        """The agents of the base lead; the adversarial verifier follows the provers, the simulator all."""
        return *self.base.stackelberg_sequence, (ADVERSARY,), (SIMULATOR,)

    @property
    def num_variants(self) -> int:
        """Each variant of the base twice: first with its verifier, then with the adversarial one."""
        return 2 * self.base.num_variants

    def is_judged(self, variant: int) -> bool:
        """Return whether the verifier of the base, which decides, is seated."""
        own = self.base.num_variants
        return variant < own and self.base.is_judged(variant)

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the turn of the base with the seated verifier, and the simulator where a prover answers."""
        seat, own = divmod(variant, self.base.num_variants)
        found: dict[str, tuple[str, ...]] = {}
        for name, channels in self.base.turn(round_index, own).items():
            if name in self.prover_names:
                found[name] = tuple(map(_answers, channels))
                found[SIMULATOR] = (*found.get(SIMULATOR, ()), *map(_simulated, channels))
            else:
                taken = ADVERSARY if seat and name in self.verifier_names else name
                found[taken] = (*found.get(taken, ()), *channels)
        return found

    def side_rewards(self, round_index: int, action_BAK: Tensor, seed_B: Tensor) -> Tensor:
        """Return (B, A) the rewards for the answers that the simulator predicts in this round."""
        speaks_BAC, said_BAC = self.speakers(round_index, seed_B), action_BAK[..., 1:]
        heard_BC = torch.where(speaks_BAC, said_BAC, NOTHING).amax(1)
        count = len(self.base.message_channel_names)
        answers_BC, simulated_BC = heard_BC[:, count : 2 * count], heard_BC[:, 2 * count :]
        foretold_B = ((answers_BC == simulated_BC) & (answers_BC != NOTHING)).sum(1)
        gains_WA = self.constant("foretold", seed_B.device, self._of_foretelling)
        return self.of_variant(gains_WA, seed_B) * foretold_B[:, None]

    def _of_foretelling(self) -> list[list[float]]:
        """Return, by variant, the reward of each agent for a predicted answer."""
        of_provers = dict.fromkeys(self.prover_names, self.gains.prover_simulated_reward)
        gains = {**of_provers, SIMULATOR: self.gains.simulator_reward}
        met = {**gains, ADVERSARY: -self.gains.adversary_penalty}
        seats = [gains if variant < self.base.num_variants else met for variant in self._variants]
        return [[seat.get(name, 0.0) for name in self.agent_names] for seat in seats]


def _is_own(handler: ProtocolHandler, name: str) -> bool:
    """Return whether a protocol overrides this method of ProtocolHandler."""
    return getattr(type(handler), name) is not getattr(ProtocolHandler, name)


def _answers(channel: str) -> str:
    return f"{channel}_answers"


def _simulated(channel: str) -> str:
    return f"{channel}_simulated"
