"""The keys that protocols share: how long an episode may be, what is gained by a decision, what is forced."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import SerializeAsAny

from ludus.config.base import Count, Positive, StrictConfig
from ludus.config.sections import registered

REJECT, ACCEPT, CONTINUE = 0, 1, 2
"""A verifier's decision: REJECT and ACCEPT end an episode, CONTINUE does not."""
Guess = Literal["zero", "one", "y"]


class Rules(NamedTuple):
    """What the keys of a protocol come to; a key that a protocol does without has the value here."""

    max_message_rounds: int
    min_message_rounds: int
    force_guess: Guess | None
    verifier_reward: float
    verifier_incorrect_reward: float
    verifier_terminated_reward: float
    verifier_continue_reward: float = 0.0
    shared_reward: bool = False
    prover_reward: float = 0.0

    def of_verifier(self, verdict: int, y: int, round_index: int) -> float:
        """Return what a verifier gains by its decision about a datum with this label."""
        if verdict != CONTINUE:
            return self.verifier_reward if verdict == y else self.verifier_incorrect_reward
        if round_index == self.max_message_rounds - 1:
            return self.verifier_terminated_reward
        return self.verifier_continue_reward


class AnyProtocolParameters(StrictConfig):
    """What a section of any protocol holds."""

    kind: str
    """Which protocol this section is for."""


ProtocolSection = Annotated[SerializeAsAny[AnyProtocolParameters], registered("protocol")]


class VerifierParameters(AnyProtocolParameters):
    """What a protocol is told in which verifiers decide, each with one turn, the last of `num_rounds`."""

    num_rounds: ClassVar[int] = 1

    force_guess: Guess | None
    """Replace a verifier's decision, in its first turn in which it may decide, by 0, by 1 or by the true
    label; null lets it decide for itself."""
    verifier_reward: float
    """What a verifier gains by a right decision."""
    verifier_incorrect_reward: float
    """What a verifier gains by a wrong decision."""
    verifier_terminated_reward: float
    """What a verifier gains when the rounds run out and it has not decided."""

    def rules(self) -> Rules:
        """Return what these keys come to."""
        keys = self.model_dump()
        keys.setdefault("max_message_rounds", self.num_rounds)
        keys.setdefault("min_message_rounds", self.num_rounds)
        return Rules(**{name: keys[name] for name in Rules._fields if name in keys})


class ProverParameters(VerifierParameters):
    """What a protocol is told in which provers argue and a verifier decides, in its one turn."""

    shared_reward: bool
    """Give every prover the verifier's reward instead of its own."""
    prover_reward: float
    """What a prover gains when the decision is the one it argues for."""


class ProtocolParameters(ProverParameters):
    """What a protocol is told in which provers and verifiers speak for several rounds."""

    max_message_rounds: Positive
    """How many rounds an episode has at most; when they run out undecided, it is terminated."""
    min_message_rounds: Count
    """A verifier may not decide before this many rounds have been played, the one in which it decides
    included; 0 and 1 let it decide in its first turn."""
    verifier_continue_reward: float
    """What a verifier gains in each turn in which it may decide and goes on instead; where the rounds run
    out with it, verifier_terminated_reward takes its place."""
