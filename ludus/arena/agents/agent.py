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
from ludus.core.errors import ConfigError, LudusError


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


class AgentOutput(NamedTuple):
    """The logits of an agent."""

    decision: Tensor
    """(N, 3), of REJECT, ACCEPT and CONTINUE."""
    message: Tensor
    """(N, C, V), of the symbols for each channel."""


class Agent(nn.Module):
    """Derive it for an agent of your own; which of the three methods are called is the trainer's choice."""

    Config: ClassVar[type[AgentParameters]]
    trainer_types: ClassVar[tuple[str, ...]] = ("rl", "solo_agent")
    """The types of trainer it can be built for; name your own too, where your class knows what it means."""

    def policy(self, rows: Rows) -> AgentOutput:
        """Return the logits of decision and messages."""
        raise undefined(self, "policy")

    def value(self, rows: Rows) -> Tensor:
        """Return (N,) what it expects to gain."""
        raise undefined(self, "value")

    def policy_and_value(self, rows: Rows) -> tuple[AgentOutput, Tensor]:
        """Return both; override it where one look serves both."""
        return self.policy(rows), self.value(rows)

    def solo(self, rows: Rows) -> Tensor:
        """Return (N, 2) logits of the label, by the datum alone."""
        raise undefined(self, "solo")

    def observe(self, rows: Rows) -> None:
        """Take in the rows of an iteration when all has been learned from them, if it keeps statistics."""

    @property
    def has_observed(self) -> bool:
        """Whether it needs to observe nothing before it is first used."""
        return True

    def rates(self) -> dict[str, float]:
        """Return the factor of the learning rate of each part, by the part's name."""
        return {"": 1.0}


_RETURNS = {
    "policy": "an AgentOutput: logits (rows, 3) of the decision and (rows, channels, symbols) of messages",
    "value": "(rows,) what the agent expects to gain",
    "solo": "(rows, 2) logits of the label",
}


def undefined(agent: Agent, method: str) -> LudusError:
    """Return the error that the class of an agent lacks a method that is asked for."""
    return LudusError(
        f"{type(agent).__name__} defines no '{method}', which this trainer asks its agents for; define it,"
        f" and return {_RETURNS[method]}"
    )


def check_trainer_type(agent: type[Agent], kind: str, trainer_type: str) -> None:
    """Raise ConfigError unless agents of this kind can be built for trainers of this type."""
    if trainer_type not in agent.trainer_types:
        raise ConfigError(
            f"the trainer's trainer_type is '{trainer_type}', but agents of the kind '{kind}' are built for"
            f" {' or '.join(agent.trainer_types)} (rl: policy and value heads, solo_agent: the solo one); set"
            " trainer_type to one of these, or name yours in 'trainer_types' of an agent class of your own"
        )


def check_solo(agent: Agent, name: str) -> None:
    """Raise LudusError unless the class of an agent defines what it answers alone."""
    if getattr(agent.solo, "__func__", None) is Agent.solo:
        raise LudusError(f"agent '{name}': {undefined(agent, 'solo')}")


def check_said(said: object, whose: str, *, rows: int, channels: int, symbols: int | None) -> int:
    """Return the number of symbols of logits; raise LudusError unless their shapes are right.

    `symbols` is how many there must be; None: any number.
    """
    if not isinstance(said, AgentOutput):
        raise LudusError(f"{whose} returned a {type(said).__name__}; return {_RETURNS['policy']}")
    _check_shape(
        said.decision,
        f"{whose} returned decision logits",
        (rows, 3),
        "those of REJECT, ACCEPT and CONTINUE for each row",
    )
    _check_shape(
        said.message,
        f"{whose} returned message logits",
        (rows, channels, symbols),
        "rows, channels, and the symbols that the agent may choose from",
    )
    return said.message.shape[-1]


def check_value(value: object, whose: str, *, rows: int) -> None:
    """Raise LudusError unless values are one number for each row."""
    _check_shape(value, f"{whose} returned values", (rows,), "one number for each row")


def _check_shape(found: object, what: str, shape: tuple[int | None, ...], meaning: str) -> None:
    wanted = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
    right = f"return a tensor {wanted}: {meaning}"
    if not isinstance(found, Tensor):
        raise LudusError(f"{what} that are a {type(found).__name__}; {right}")
    sizes = zip(shape, found.shape, strict=False)
    if found.ndim != len(shape) or any(size not in (None, there) for size, there in sizes):
        raise LudusError(f"{what} of shape {tuple(found.shape)}; {right}")


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
