"""The protocol `debate`: two provers argue for opposite decisions before a verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ludus.arena.protocol import ACCEPT, REJECT, ProtocolHandler, ProtocolParameters, Turn
from ludus.arena.two_provers import problems_of_order, prover_turns
from ludus.config.registry import register


class DebateParameters(ProtocolParameters):
    """Two opposing provers, and a verifier that answers both."""

    verifier_first: bool
    """The verifier speaks first; false: the provers begin."""
    sequential: bool
    """One prover speaks, then the other; false: both speak in the same round, so that neither answers the
    other's newest message.
    """
    prover0_first: bool | None
    """Of two sequential provers, prover0 is the first; null where they speak simultaneously."""
    provers_hear_each_other: bool
    """Each prover reads the other's channel too, as in a public debate; false: separate, like
    witnesses.
    """

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make meaningless."""
        yield from super().problems()
        yield from problems_of_order(self.sequential, self.prover0_first)


@register("protocol", "debate")
class Debate(ProtocolHandler):
    """prover0 argues for 0 and prover1 for 1, each in its own channel; the verifier speaks in both."""

    Config = DebateParameters
    params: DebateParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """One verifier, two provers."""
        return "verifier", "prover0", "prover1"

    @property
    def prover_goals(self) -> Mapping[str, int]:
        """prover0 wants the datum rejected, prover1 accepted."""
        return {"prover0": REJECT, "prover1": ACCEPT}

    @property
    def message_channel_names(self) -> tuple[str, ...]:
        """One for each prover."""
        return "prover0_channel", "prover1_channel"

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """The verifier reads both; a prover its own, and the other's where they hear each other."""
        both, hear = self.message_channel_names, self.params.provers_hear_each_other
        own = {"prover0": both[:1], "prover1": both[1:]}
        return {"verifier": both, **{name: both if hear else own[name] for name in own}}

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the provers, sequential or simultaneous, then the verifier, or the verifier first."""
        params = self.params
        said = prover_turns(params.sequential, params.prover0_first)
        asks: Turn = {"verifier": self.message_channel_names}
        cycle = [asks, *said] if params.verifier_first else [*said, asks]
        return cycle[round_index % len(cycle)]
