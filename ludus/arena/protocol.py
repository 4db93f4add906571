"""Protocol: who speaks to whom in which round, who decides, and the reward of each agent.

All episodes of a batch are in the same round, so a round is a plain number. An episode has one of several
variants, chosen by its seed, which differ in who speaks.

Shapes: B episodes, A agents, C channels, W variants, K = 1 + C numbers of an action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ludus.arena.rules import (
    ACCEPT,
    CONTINUE,
    REJECT,
    AnyProtocolParameters,
    ProtocolParameters,
    ProtocolSection,
    ProverParameters,
    Rules,
    VerifierParameters,
)
from ludus.arena.validate_protocol import validate_protocol
from ludus.core.errors import ConfigError

__all__ = [
    "ACCEPT",
    "CONTINUE",
    "NOTHING",
    "REJECT",
    "Outcome",
    "ProtocolHandler",
    "ProtocolParameters",
    "ProtocolSection",
    "ProverParameters",
    "Turn",
    "VerifierParameters",
]

NOTHING = -1
"""An entry of the message history where nobody has spoken, or that is hidden from the agent."""

Turn = Mapping[str, tuple[str, ...]]
"""The active agents of a round, each with the channels in which it speaks; one that only decides has none."""


class Outcome(NamedTuple):
    """The result of a round."""

    rewards: Tensor
    """(B, A)."""
    terminated: Tensor
    """(B,) whether the episode ends with this round: it was decided, or the rounds ran out."""
    verdict: Tensor
    """(B,) the decision that counts, forced or not: REJECT, ACCEPT, or CONTINUE where there is none."""


class ProtocolHandler(ABC):
    """The rules of a protocol, without state. A subclass defines the agents and their turns."""

    Config: ClassVar[type[AnyProtocolParameters]] = ProtocolParameters
    derived: ClassVar[tuple[str, ...]] = ("_made",)
    has_rounds: ClassVar[bool] = True
    """Whether its rounds decide the length of an episode; false where an environment ends it."""

    def __init__(self, params: VerifierParameters) -> None:
        """Raise ConfigError where no episode can be played by these parameters."""
        self.params = params
        self.rules: Rules = params.rules()
        self._made: dict[tuple[str, torch.device], Tensor] = {}
        for problem in self.problems():
            raise ConfigError(problem)

    @property
    @abstractmethod
    def agent_names(self) -> tuple[str, ...]:
        """All agents, in the order of the agent dimension."""

    @abstractmethod
    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the active agents of this round in this variant, and the channels in which each speaks."""

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """The verifiers: the agents that decide."""
        return ("verifier",)

    @property
    def prover_names(self) -> tuple[str, ...]:
        """The provers: the agents that argue."""
        return tuple(name for name in self.agent_names if name not in self.verifier_names)

    @property
    def prover_goals(self) -> Mapping[str, int]:
        """The decision that each prover argues for, REJECT or ACCEPT."""
        return dict.fromkeys(self.prover_names, ACCEPT)

    @property
    def message_channel_names(self) -> tuple[str, ...]:
        """All channels, in the order of the channel dimension."""
        return ("main",)

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """The channels that each agent may read, including those in which it speaks."""
        return dict.fromkeys(self.agent_names, self.message_channel_names)

    @property
    def stackelberg_sequence(self) -> tuple[tuple[str, ...], ...]:
        """Groups of agents from the leaders to the last followers; those of a group move simultaneously."""
        return tuple(group for group in (self.verifier_names, self.prover_names) if group)

    @property
    def max_message_rounds(self) -> int:
        """The maximum number of rounds of an episode."""
        return self.rules.max_message_rounds

    @property
    def min_message_rounds(self) -> int:
        """The number of rounds played before a decision counts."""
        return self.rules.min_message_rounds

    @property
    def num_variants(self) -> int:
        """The number of variants: an episode has the variant `seed % num_variants`."""
        return 1

    def is_judged(self, variant: int) -> bool:
        """Return whether a verifier decides episodes of this variant."""
        return True

    def judged(self, seed_B: Tensor) -> Tensor:
        """Return (B,) which episodes a verifier decides: accuracy is defined for these."""
        judged_W = self.constant(
            "judged", seed_B.device, lambda: [self.is_judged(w) for w in self._variants]
        )
        return self.of_variant(judged_W, seed_B)

    def speakers(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A, C) who speaks in which channel in this round; at most one agent per channel."""

        def rows() -> list[list[list[bool]]]:
            agents, channels = self.agent_names, self.message_channel_names
            turns = self._turns(round_index)
            return [[[c in turn.get(a, ()) for c in channels] for a in agents] for turn in turns]

        speaks_WAC = self.constant(f"speaks/{round_index}", seed_B.device, rows)
        return self.of_variant(speaks_WAC, seed_B)

    def has_turn(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A) who is active in this round."""

        def rows() -> list[list[bool]]:
            return [[a in turn for a in self.agent_names] for turn in self._turns(round_index)]

        return self.of_variant(self.constant(f"active/{round_index}", seed_B.device, rows), seed_B)

    def deciders(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A) whose decision counts in this round: verifiers with a turn, after
        min_message_rounds."""

        def rows() -> list[list[bool]]:
            agents, variants = self.agent_names, self._variants
            return [[self.decides(a, round_index, w) for a in agents] for w in variants]

        return self.of_variant(self.constant(f"decides/{round_index}", seed_B.device, rows), seed_B)

    def acting(self, round_index: int) -> tuple[int, ...]:
        """Return the agents that may be active in this round, for any seed."""
        active = {name for turn in self._turns(round_index) for name in turn}
        return tuple(i for i, name in enumerate(self.agent_names) if name in active)

    def forced(self, decision_B: Tensor, y_B: Tensor) -> Tensor:
        """Return the decisions that count: those made, or the forced guess."""
        guess = self.rules.force_guess
        if guess is None:
            return decision_B
        if guess == "y":
            return y_B
        return torch.full_like(decision_B, ACCEPT if guess == "one" else REJECT)

    def step(
        self, round_index: int, action_BAK: Tensor, y_B: Tensor, over_B: Tensor, seed_B: Tensor
    ) -> Outcome:
        """Return the reward of each agent in this round, and which episodes end with it.

        An episode that was over has no further reward.
        """
        going_B = ~over_B
        verdict_B = self._verdict(round_index, action_BAK[..., 0], y_B, going_B, seed_B)
        # Rewards follow from variant, verdict and label: a small table, indexed for each episode.
        gains_WVYA = self.constant(
            f"gains/{round_index}", y_B.device, lambda: self._gains(round_index)
        )
        row_B = (seed_B % self.num_variants * 3 + verdict_B) * 2 + y_B
        rewards_BA = gains_WVYA.flatten(0, 2).index_select(0, row_B)
        side_BA = self.side_rewards(round_index, action_BAK, seed_B)
        rewards_BA = rewards_BA if side_BA is None else rewards_BA + side_BA
        is_last = round_index == self.max_message_rounds - 1
        ends_B = going_B if is_last else verdict_B != CONTINUE
        return Outcome(rewards_BA * going_B[:, None], ends_B, verdict_B)

    def _verdict(
        self, round_index: int, decision_BA: Tensor, y_B: Tensor, going_B: Tensor, seed_B: Tensor
    ) -> Tensor:
        """Return (B,) the decision of the verifier that decides in this round, if one does."""
        judges = [one for one in dict.fromkeys(self._judges(round_index)) if one is not None]
        if not judges:
            return torch.full_like(y_B, CONTINUE)
        decides_BA = self.deciders(round_index, seed_B)
        # At most one decides; where it is always the same, no other decision is read.
        first, *others = self.indices(judges)
        decision_B, may_B = decision_BA[:, first], decides_BA[:, first]
        for which in others:
            decision_B = torch.where(decides_BA[:, which], decision_BA[:, which], decision_B)
            may_B = may_B | decides_BA[:, which]
        return torch.where(may_B & going_B, self.forced(decision_B, y_B), CONTINUE)

    def _judges(self, round_index: int) -> list[str | None]:
        """Return, by variant, the verifier whose decision counts in this round."""
        names = self.verifier_names
        return [
            next((name for name in names if self.decides(name, round_index, variant)), None)
            for variant in self._variants
        ]

    def _gains(self, round_index: int) -> list[list[list[list[float]]]]:
        """Return, by variant, verdict and label, the reward of each agent for the decision in this round."""
        return [
            [[self._gained(round_index, judge, verdict, y) for y in (0, 1)] for verdict in range(3)]
            for judge in self._judges(round_index)
        ]

    def _gained(self, round_index: int, judge: str | None, verdict: int, y: int) -> list[float]:
        """Return the reward of each agent when this judge decides so about a datum with this label."""
        rules, gains = self.rules, dict.fromkeys(self.agent_names, 0.0)
        if judge is None:
            return [*gains.values()]
        own = gains[judge] = rules.of_verifier(verdict, y, round_index)
        for prover in self.prover_names:
            argued = rules.prover_reward if verdict == self.prover_goals[prover] else 0.0
            gains[prover] = own if rules.shared_reward else argued
        return [*gains.values()]

    def side_rewards(self, round_index: int, action_BAK: Tensor, seed_B: Tensor) -> Tensor | None:
        """Return (B, A) rewards for the messages, besides those for the decision; None: none."""
        return None

    def problems(self) -> Iterator[str]:
        """Yield each reason why no episode can be played."""
        yield from validate_protocol(self)

    def indices(self, names: Sequence[str]) -> list[int]:
        """Return the indices of these agents in the agent dimension."""
        return [self.agent_names.index(name) for name in names]

    def visibility(self, device: torch.device) -> Tensor:
        """Return (A, C) which agent may read which channel."""
        seen = self.agent_channel_visibility
        channels = self.message_channel_names
        rows = [[channel in seen[name] for channel in channels] for name in self.agent_names]
        return torch.tensor(rows, device=device)

    def decides(self, name: str, round_index: int, variant: int) -> bool:
        """Return whether the decision of this agent counts in this round."""
        is_late_enough = round_index >= self.min_message_rounds - 1
        is_verifier = name in self.verifier_names and name in self.turn(round_index, variant)
        return is_late_enough and is_verifier and self.is_judged(variant)

    @property
    def _variants(self) -> range:
        return range(self.num_variants)

    def _turns(self, round_index: int) -> list[Turn]:
        return [self.turn(round_index, variant) for variant in self._variants]

    def constant(
        self, name: str, device: torch.device, rows: Callable[[], Sequence[object]]
    ) -> Tensor:
        """Return a tensor of these numbers, cached: a copy from the host is a host sync."""
        if (name, device) not in self._made:
            self._made[name, device] = torch.tensor(rows(), device=device)
        return self._made[name, device]

    def of_variant(self, by_variant: Tensor, seed_B: Tensor) -> Tensor:
        """Return (B, ...) the rows of the variants that the seeds choose."""
        if self.num_variants == 1:
            return by_variant.expand(len(seed_B), *by_variant.shape[1:])
        return by_variant.index_select(0, seed_B % self.num_variants)
