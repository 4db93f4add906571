"""What an agent is to a trainer: a policy, a value and a solo answer for rows of what it sees.

Shapes: N rows, C channels, V symbols.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from pydantic import SerializeAsAny
from torch import Tensor, nn

from ludus.arena.agents.body import Rows
from ludus.arena.schedule import UpdateScheduleSection
from ludus.config.base import NonNegativeFloat, StrictConfig
from ludus.config.sections import registered


class LoadParameters(StrictConfig):
    """Where the weights of an agent come from."""

    run: str
    """The directory of an earlier run."""
    model: str
    """Which of its kept models, such as best or final."""
    agent: str
    """Which of its agents."""


class AgentParameters(StrictConfig):
    """What every agent is told, whatever it is made of."""

    kind: str
    """What it is: parts, or a whole agent of another kind."""
    update_schedule: UpdateScheduleSection
    """In which iterations it learns; in the others it is frozen."""
    load: LoadParameters | None
    """Begin with the weights of an agent of an earlier run; null: with fresh ones."""


AgentSection = Annotated[SerializeAsAny[AgentParameters], registered("arena_agent")]


class Said(NamedTuple):
    """The logits of an agent."""

    decision: Tensor
    """(N, 3), of REJECT, ACCEPT and CONTINUE."""
    message: Tensor
    """(N, C, V), of the symbols for each channel."""


class Agent(nn.Module):
    """Derive it for an agent of your own; which of the three methods are called is the trainer's choice."""

    Config: ClassVar[type[AgentParameters]]

    def policy(self, rows: Rows) -> Said:
        """Return the logits of decision and messages."""
        raise NotImplementedError

    def value(self, rows: Rows) -> Tensor:
        """Return (N,) what it expects to gain."""
        raise NotImplementedError

    def policy_and_value(self, rows: Rows) -> tuple[Said, Tensor]:
        """Return both; override it where one look serves both."""
        return self.policy(rows), self.value(rows)

    def solo(self, rows: Rows) -> Tensor:
        """Return (N, 2) logits of the label, by the datum alone."""
        raise NotImplementedError

    def observe(self, rows: Rows) -> None:
        """Take in the rows of an iteration when all has been learned from them, if it keeps statistics."""

    @property
    def has_observed(self) -> bool:
        """Whether it needs to observe nothing before it is first used."""
        return True

    def rates(self) -> dict[str, float]:
        """Return the factor of the learning rate of each part, by the part's name."""
        return {"": 1.0}


class Factors(StrictConfig):
    """A factor of the learning rate for each part of an agent."""

    body: NonNegativeFloat
    """Of the body, or of both where policy and value have one each."""
    policy_head: NonNegativeFloat
    """Of the head that speaks and decides."""
    value_head: NonNegativeFloat
    """Of the head that values."""
    solo_head: NonNegativeFloat
    """Of the head that answers alone."""
