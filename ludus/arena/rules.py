"""Keys shared by protocols: the length of an episode, the rewards of a decision, and forced guesses."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import SerializeAsAny

from ludus.config.base import Count, Positive, StrictConfig
from ludus.config.sections import registered

REJECT, ACCEPT, CONTINUE = 0, 1, 2
"""A verifier's decision: REJECT and ACCEPT end an episode, CONTINUE does not."""
Guess = Literal["zero", "one", "y"]


class SubParameters(StrictConfig):
    """A section of parameters; derive it for those of your own trainer."""


class Rules(NamedTuple):
    """The rules resulting from a protocol's keys; a key that a protocol lacks has the default here."""

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
        """Return the reward of a verifier for its decision about a datum with this label."""
        if verdict != CONTINUE:
            return self.verifier_reward if verdict == y else self.verifier_incorrect_reward
        if round_index == self.max_message_rounds - 1:
            return self.verifier_terminated_reward
        return self.verifier_continue_reward


class AnyProtocolParameters(StrictConfig):
    """The keys of every protocol."""

    kind: str
    """The protocol of this section."""


ProtocolSection = Annotated[SerializeAsAny[AnyProtocolParameters], registered("protocol")]


class VerifierParameters(AnyProtocolParameters):
    """The keys of protocols in which verifiers decide, each with one turn, the last of `num_rounds`."""

    num_rounds: ClassVar[int] = 1

    force_guess: Guess | None
    """Replace a verifier's decision, in the first turn in which it may decide, by 0, by 1 or by the true
    label; null: no forced guess.
    """
    verifier_reward: float
    """The verifier's reward for a right decision."""
    verifier_incorrect_reward: float
    """The verifier's reward for a wrong decision."""
    verifier_terminated_reward: float
    """The verifier's reward when the rounds run out undecided."""

    def rules(self) -> Rules:
        """Return the rules of these keys."""
        keys = self.model_dump()
        keys.setdefault("max_message_rounds", self.num_rounds)
        keys.setdefault("min_message_rounds", self.num_rounds)
        return Rules(**{name: keys[name] for name in Rules._fields if name in keys})


class ProverParameters(VerifierParameters):
    """The keys of protocols in which provers argue and a verifier decides, in its one turn."""

    shared_reward: bool
    """Give every prover the verifier's reward instead of its own."""
    prover_reward: float
    """A prover's reward when the decision is the one it argues for."""


class ProtocolParameters(ProverParameters):
    """The keys of protocols in which provers and verifiers speak for several rounds."""

    max_message_rounds: Positive
    """The maximum number of rounds of an episode; when they run out undecided, it is terminated."""
    min_message_rounds: Count
    """A verifier may not decide before this many rounds have been played, including the one in which it
    decides; 0 and 1 let it decide in its first turn.
    """
    verifier_continue_reward: float
    """The verifier's reward in each turn in which it may decide and continues instead; where the rounds run
    out with it, it gets verifier_terminated_reward.
    """
