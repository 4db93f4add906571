"""The agent kind `random`: uniformly random symbols, no decisions, no learning; a baseline.

Shapes: N rows, C channels, V symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from torch import Tensor

from ludus.arena.agents.agent import Agent, AgentOutput, AgentParameters
from ludus.arena.agents.body import Body, Rows
from ludus.arena.agents.heads import ABSENT
from ludus.arena.protocol import CONTINUE
from ludus.arena.scenario import ObservationSizes
from ludus.arena.schedule import ConstantSchedule
from ludus.config.registry import register


class RandomParameters(AgentParameters):
    """A random agent has no options."""

    kind: Literal["random"]
    """Uniformly random symbols, no decisions, no learning."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.load is not None:
            yield "'load' names an earlier run, but a random agent has no weights; make it null"
        schedule = self.update_schedule
        if not isinstance(schedule, ConstantSchedule) or schedule.learns:
            yield (
                "'update_schedule' lets a random agent learn, which has no weights; make it"
                " {kind: constant, learns: false}"
            )


@register("arena_agent", "random")
class RandomAgent(Agent):
    """A whole agent without parts and without parameters; its value is 0, its solo answer uniform."""

    Config = RandomParameters

    def __init__(
        self,
        params: RandomParameters,
        seen: ObservationSizes,
        *,
        name: str,
        trainer_type: str,
        use_shared_body: bool,
        body: Body | None = None,
    ) -> None:
        super().__init__()
        self.params = params
        self._shape = seen.num_channels, seen.num_symbols

    def policy(self, rows: Rows) -> AgentOutput:
        """Return logits that always choose CONTINUE, and uniform ones of the symbols."""
        like: Tensor = rows["round"].float()
        decision_N3 = like.new_full((len(like), 3), ABSENT)
        decision_N3[:, CONTINUE] = 0.0
        return AgentOutput(decision_N3, like.new_zeros(len(like), *self._shape))

    def value(self, rows: Rows) -> Tensor:
        """Return (N,) zeros."""
        return rows["round"].float() * 0.0

    def solo(self, rows: Rows) -> Tensor:
        """Return (N, 2) uniform logits."""
        return rows["round"].new_zeros(len(rows["round"]), 2).float()

    def rates(self) -> dict[str, float]:
        """Return nothing: it has no trainable parts."""
        return {}
