"""A protocol: who speaks to whom in which round, who decides, and what each agent gains by it.

All episodes of a batch are in the same round, so a round is a plain number. Which agents speak may
still differ from episode to episode: each has a seed of its own.

Shapes: B episodes, A agents, C channels, R rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.config.base import Count, Positive, StrictConfig
from ludus.config.sections import registered

REJECT, ACCEPT, CONTINUE = 0, 1, 2
"""What a verifier may decide; only the first two end an episode."""
NOTHING = -1
"""A place of the message history where nobody has spoken, or which the agent may not see."""


class ProtocolParameters(StrictConfig):
    """What every protocol is told."""

    kind: str
    """Which protocol this section is for."""
    max_message_rounds: Positive
    """How many rounds an episode has at most; when they run out undecided, it is terminated."""
    min_message_rounds: Count
    """A verifier may not decide before this many rounds have been played, the one in which it decides
    included."""
    shared_reward: bool
    """Give every prover the verifier's reward instead of its own."""
    force_guess: Literal["zero", "one", "y"] | None
    """Replace a verifier's decision, at its first turn in which it may decide, by 0, by 1 or by the true
    label; null lets it decide for itself."""
    prover_reward: float
    """What a prover gains when the decision is the one it argues for."""
    verifier_reward: float
    """What a verifier gains by a right decision."""
    verifier_incorrect_reward: float
    """What a verifier gains by a wrong decision."""
    verifier_terminated_reward: float
    """What a verifier gains when the rounds run out and it has not decided."""
    verifier_continue_reward: float
    """What a verifier gains in each of its turns in which it goes on."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.min_message_rounds > self.max_message_rounds:
            yield (
                f"'min_message_rounds' is {self.min_message_rounds}, but 'max_message_rounds' is"
                f" {self.max_message_rounds}: no verifier could ever decide; lower it"
            )


ProtocolSection = Annotated[SerializeAsAny[ProtocolParameters], registered("protocol")]


class Outcome(NamedTuple):
    """What a round leads to."""

    rewards: Tensor
    """(B, A)."""
    terminated: Tensor
    """(B,) whether the episode ends with this round: it was decided, or the rounds ran out."""


class ProtocolHandler(ABC):
    """Knows the rules; holds no state. A subclass says who there is, who speaks and what provers gain."""

    Config: ClassVar[type[ProtocolParameters]] = ProtocolParameters

    def __init__(self, params: ProtocolParameters) -> None:
        self.params = params

    @property
    @abstractmethod
    def agent_names(self) -> tuple[str, ...]:
        """All agents, in the order of the agent dimension."""

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """The agents that decide."""
        return ("verifier",)

    @property
    def prover_names(self) -> tuple[str, ...]:
        """The agents that argue."""
        return tuple(name for name in self.agent_names if name not in self.verifier_names)

    @property
    def message_channel_names(self) -> tuple[str, ...]:
        """All channels, in the order of the channel dimension."""
        return ("main",)

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """Which channels each agent may read; what it writes itself it may always read."""
        return dict.fromkeys(self.agent_names, self.message_channel_names)

    @property
    def stackelberg_sequence(self) -> tuple[tuple[str, ...], ...]:
        """Groups of agents from the leaders to the last followers; those of a group move at once."""
        return self.verifier_names, self.prover_names

    @property
    def max_message_rounds(self) -> int:
        """How many rounds an episode has at most."""
        return self.params.max_message_rounds

    @property
    def min_message_rounds(self) -> int:
        """How many rounds are played before a decision counts."""
        return self.params.min_message_rounds

    @abstractmethod
    def speakers(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A, C) who speaks in which channel in this round; one agent at most in each channel."""

    def deciders(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A) whose decision counts in this round: verifiers whose turn it is, late enough."""
        turn_BA = self.has_turn(round_index, seed_B)
        if round_index < self.min_message_rounds - 1:
            return torch.zeros_like(turn_BA)
        return turn_BA & self.mask(self.verifier_names, seed_B.device)

    def has_turn(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A) who is active in this round: by default, who speaks."""
        return self.speakers(round_index, seed_B).any(-1)

    def acting(self, round_index: int) -> tuple[int, ...]:
        """Return the agents that may be active in this round, whatever the seed."""
        seeds = torch.arange(64)
        found = self.has_turn(round_index, seeds) | self.deciders(round_index, seeds)
        return tuple(torch.nonzero(found.any(0))[:, 0].tolist())

    @abstractmethod
    def prover_rewards(self, decision_B: Tensor, y_B: Tensor) -> Tensor:
        """Return (B, provers) whether each prover gains by this decision, REJECT or ACCEPT, as 0 or 1."""

    def forced(self, decision_BA: Tensor, y_B: Tensor) -> Tensor:
        """Return the decisions that count: those made, or the guess that is forced."""
        guess = self.params.force_guess
        if guess is None:
            return decision_BA
        if guess == "y":
            return y_B[:, None].expand_as(decision_BA)
        return torch.full_like(decision_BA, ACCEPT if guess == "one" else REJECT)

    def step(
        self, round_index: int, decision_BA: Tensor, y_B: Tensor, over_B: Tensor, seed_B: Tensor
    ) -> Outcome:
        """Return what each agent gains in this round, and which episodes end with it.

        An episode that was over gains nothing more.
        """
        params = self.params
        deciders_BA = self.deciders(round_index, seed_B) & ~over_B[:, None]
        decision_BA = self.forced(decision_BA, y_B)
        verdict_BA = torch.where(deciders_BA, decision_BA, CONTINUE)
        is_decided_BA = verdict_BA != CONTINUE
        decided_B = is_decided_BA.any(-1)
        is_last = round_index == self.max_message_rounds - 1
        rewards_BA = torch.zeros(decision_BA.shape, device=y_B.device)
        right_BA = is_decided_BA & (verdict_BA == y_B[:, None])
        rewards_BA = rewards_BA + params.verifier_reward * right_BA
        rewards_BA = rewards_BA + params.verifier_incorrect_reward * (is_decided_BA & ~right_BA)
        went_on_BA = deciders_BA & ~is_decided_BA
        rewards_BA = rewards_BA + params.verifier_continue_reward * went_on_BA
        if is_last:
            ran_out_BA = ~(over_B | decided_B)[:, None] & self.mask(self.verifier_names, y_B.device)
            rewards_BA = rewards_BA + params.verifier_terminated_reward * ran_out_BA
        rewards_BA = rewards_BA + self._of_provers(rewards_BA, verdict_BA, decided_B, y_B)
        ends_B = (decided_B | torch.full_like(decided_B, is_last)) & ~over_B
        return Outcome(rewards_BA, ends_B)

    def _of_provers(
        self, rewards_BA: Tensor, verdict_BA: Tensor, decided_B: Tensor, y_B: Tensor
    ) -> Tensor:
        """Return (B, A) what the provers gain, 0 for the others."""
        found_BA = torch.zeros_like(rewards_BA)
        provers = self.indices(self.prover_names)
        if not provers:
            return found_BA
        judge = self.indices(self.verifier_names)[0]
        if self.params.shared_reward:
            found_BA[:, provers] = rewards_BA[:, judge, None].expand(-1, len(provers))
            return found_BA
        gains_BP = self.prover_rewards(verdict_BA[:, judge], y_B).to(rewards_BA)
        found_BA[:, provers] = self.params.prover_reward * gains_BP * decided_B[:, None]
        return found_BA

    def indices(self, names: Sequence[str]) -> list[int]:
        """Return where these agents are in the agent dimension."""
        return [self.agent_names.index(name) for name in names]

    def mask(self, names: Sequence[str], device: torch.device) -> Tensor:
        """Return (A,) which agents are among these."""
        found = [name in names for name in self.agent_names]
        return torch.tensor(found, device=device)

    def visibility(self, device: torch.device) -> Tensor:
        """Return (A, C) which agent may read which channel."""
        seen = self.agent_channel_visibility
        channels = self.message_channel_names
        rows = [[channel in seen[name] for channel in channels] for name in self.agent_names]
        return torch.tensor(rows, device=device)
