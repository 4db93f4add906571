"""The protocol `parallel`: all agents act simultaneously in every step, and the env gives the rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from ludus.arena.protocol import ProtocolHandler, Turn
from ludus.arena.rules import AnyProtocolParameters, Rules
from ludus.config.registry import register


class ParallelParameters(AnyProtocolParameters):
    """No options: the env has the rules."""

    kind: Literal["parallel"]
    """All agents act simultaneously, in every step of an env."""

    def rules(self) -> Rules:
        """Return rules without rounds and decisions."""
        return Rules(0, 0, None, 0.0, 0.0, 0.0)


@register("protocol", "parallel")
class Parallel(ProtocolHandler):
    """One channel, whose symbols are the actions; the agents are those of the scenario's env."""

    Config = ParallelParameters
    has_rounds = False
    names: tuple[str, ...] = ()

    def of(self, names: tuple[str, ...]) -> Self:
        """Return the protocol of these agents."""
        self.names = names
        return self

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents of the env."""
        return self.names

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """Nobody decides."""
        return ()

    @property
    def stackelberg_sequence(self) -> tuple[tuple[str, ...], ...]:
        """All agents in one group: they act simultaneously."""
        return (self.names,)

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return all agents as active."""
        return dict.fromkeys(self.names, self.message_channel_names)

    def problems(self) -> Iterator[str]:
        """Yield nothing: the agents are not known before the env is."""
        yield from ()
