"""The agent kind `parts`: a body, and the heads that the trainer needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from torch import Tensor, nn

from ludus.arena.agents.agent import Agent, AgentOutput, AgentParameters, Factors
from ludus.arena.agents.body import Body, BodySection, Rows, make_body
from ludus.arena.agents.heads import HeadParameters, PolicyHead, SoloHead, ValueHead
from ludus.arena.scenario import ObservationSizes
from ludus.config.registry import register
from ludus.core.errors import LudusError

TrainerKind = Literal["rl", "solo_agent"]


class PartsParameters(AgentParameters):
    """A body, and heads on it."""

    kind: Literal["parts"]
    """A body, and heads on it."""
    body: BodySection
    """The body."""
    shares_body_of: str | None
    """Share the body of this other agent, which must have the same section; null: its own body."""
    policy_head: HeadParameters
    """The policy head: messages and decision."""
    value_head: HeadParameters
    """The value head."""
    solo_head: HeadParameters
    """The solo head: classification of the datum."""
    learning_rate_factors: Factors
    """Factors of the learning rate of each part."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make meaningless."""
        factor = self.learning_rate_factors.body
        if self.shares_body_of is not None and factor != 1:
            yield (
                f"'learning_rate_factors.body' is {factor:g}, but the body is that of {self.shares_body_of}"
                " and learns at its factor; set it to 1.0"
            )


@register("arena_agent", "parts")
class PartsAgent(Agent):
    """An agent with the heads that the trainer needs: policy and value for `rl`, solo for `solo_agent`."""

    Config = PartsParameters

    def __init__(
        self,
        params: PartsParameters,
        seen: ObservationSizes,
        *,
        name: str,
        trainer_type: str,
        use_shared_body: bool,
        body: Body | None = None,
    ) -> None:
        super().__init__()
        self.params = params
        self.body = make_body(params.body, seen, agent=name) if body is None else body
        self.has_own_body = body is None
        width = self.body.width
        self.value_body: Body | None = None
        self.policy_head = self.value_head = self.solo_head = None
        if trainer_type == "solo_agent":
            self.solo_head = SoloHead(params.solo_head, width)
            return
        self.policy_head = PolicyHead(
            params.policy_head, self.body, seen.num_channels, num_symbols=seen.num_symbols
        )
        self.value_head = ValueHead(
            params.value_head, self.body, in_env=seen.max_message_rounds == 0
        )
        if not use_shared_body:
            self.value_body = make_body(params.body, seen, agent=name)

    def policy(self, rows: Rows) -> AgentOutput:
        """Return the logits of decision and messages."""
        said: AgentOutput = _there(self.policy_head, "policy")(self.body(rows))
        return said

    def value(self, rows: Rows) -> Tensor:
        """Return (N,) values: the expected return."""
        body = self.body if self.value_body is None else self.value_body
        value_N: Tensor = _there(self.value_head, "value")(body(rows))
        return value_N

    def policy_and_value(self, rows: Rows) -> tuple[AgentOutput, Tensor]:
        """Return both, by one forward pass where the body is shared."""
        if self.value_body is not None:
            return self.policy(rows), self.value(rows)
        found = self.body(rows)
        said: AgentOutput = _there(self.policy_head, "policy")(found)
        value_N: Tensor = _there(self.value_head, "value")(found)
        return said, value_N

    def solo(self, rows: Rows) -> Tensor:
        """Return (N, 2) logits of the label."""
        logits_N2: Tensor = _there(self.solo_head, "solo")(self.body(rows))
        return logits_N2

    def observe(self, rows: Rows) -> None:
        """Update the statistics of the bodies, unless they never learn."""
        if self.params.learning_rate_factors.body:
            for body in self._bodies:
                body.observe(rows)

    @property
    def has_observed(self) -> bool:
        """Whether its bodies are ready for use without observing anything first."""
        return all(body.has_observed for body in self._bodies)

    @property
    def _bodies(self) -> list[Body]:
        """Its own bodies: the owner of a shared body updates it."""
        own = self.body if self.has_own_body else None
        return [body for body in (own, self.value_body) if body is not None]

    def rates(self) -> dict[str, float]:
        """Return the factor of each part that it has and owns."""
        factors = self.params.learning_rate_factors
        parts = {"body": factors.body, "value_body": factors.body}
        parts |= {
            head: getattr(factors, head) for head in ("policy_head", "value_head", "solo_head")
        }
        if not self.has_own_body:
            del parts["body"]
        return {part: rate for part, rate in parts.items() if getattr(self, part) is not None}


def _there(head: nn.Module | None, what: str) -> nn.Module:
    """Return a head, which the trainer must have requested."""
    if head is None:
        raise LudusError(
            f"this agent was built without a {what}_head; build it with the trainer_type of the trainer that"
            " is given it: rl for policy and value, solo_agent for the solo head"
        )
    return head
