"""Agent: a policy, a value and a solo classification for rows of observations.

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
    """The source of an agent's initial weights."""

    run: str
    """The directory of an earlier run, or its name in runs/."""
    model: str
    """One of its models: best, last, or the name of a kept one, such as final."""
    agent: str
    """One of its agents."""


class AgentParameters(StrictConfig):
    """The parameters of every kind of agent."""

    kind: str
    """The kind of agent: parts, or a whole agent of another kind."""
    update_schedule: UpdateScheduleSection
    """The iterations in which it learns; in the others it is frozen."""
    load: LoadParameters | None
    """Start from the weights of an agent of an earlier run; null: from new ones."""


AgentSection = Annotated[SerializeAsAny[AgentParameters], registered("arena_agent")]


class AgentOutput(NamedTuple):
    """The logits of an agent."""

    decision: Tensor
    """(N, 3), of REJECT, ACCEPT and CONTINUE."""
    message: Tensor
    """(N, C, V), of the symbols for each channel."""


class Agent(nn.Module):
    """Base class of agents; the trainer decides which of the three methods are called."""

    Config: ClassVar[type[AgentParameters]]
    trainer_types: ClassVar[tuple[str, ...]] = ("rl", "solo_agent")
    """The types of trainer it can be built for; add your own, where your class supports it."""

    def policy(self, rows: Rows) -> AgentOutput:
        """Return the logits of decision and messages."""
        raise undefined(self, "policy")

    def value(self, rows: Rows) -> Tensor:
        """Return (N,) values: the expected return."""
        raise undefined(self, "value")

    def policy_and_value(self, rows: Rows) -> tuple[AgentOutput, Tensor]:
        """Return both; override it where one forward pass computes both."""
        return self.policy(rows), self.value(rows)

    def solo(self, rows: Rows) -> Tensor:
        """Return (N, 2) logits of the label, from the datum alone."""
        raise undefined(self, "solo")

    def observe(self, rows: Rows) -> None:
        """Update statistics with the rows of an iteration, after all updates on them, if it keeps any."""

    @property
    def has_observed(self) -> bool:
        """Whether it is ready for use without observing anything first."""
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
    """Return the error for a required method that the class of an agent lacks."""
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
    """Raise LudusError unless the class of an agent defines `solo`."""
    if getattr(agent.solo, "__func__", None) is Agent.solo:
        raise LudusError(f"agent '{name}': {undefined(agent, 'solo')}")


def check_said(said: object, whose: str, *, rows: int, channels: int, symbols: int | None) -> int:
    """Return the number of symbols of logits; raise LudusError unless their shapes are right.

    `symbols` is the required number; None: any number.
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
    """Raise LudusError unless there is one value per row."""
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
    """Of the policy head."""
    value_head: NonNegativeFloat
    """Of the value head."""
    solo_head: NonNegativeFloat
    """Of the solo head."""
