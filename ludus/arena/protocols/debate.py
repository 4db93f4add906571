"""The protocol `debate`: two provers argue for opposite decisions before a verifier."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.arena.protocol import ACCEPT, REJECT, ProtocolHandler, ProtocolParameters, Turn
from ludus.config.registry import register


class DebateParameters(ProtocolParameters):
    """Two provers against each other, and a verifier that answers both."""

    sequential: bool
    """prover0 speaks, then prover1, then the verifier; false lets both provers speak in the same round, so
    that neither answers the other's newest message."""
    provers_hear_each_other: bool
    """Each prover reads the other's channel too, as in a public debate; false keeps them apart, as witnesses
    are."""


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
        """Return the provers, one after another or at once, then the verifier."""
        said: list[Turn] = [{"prover0": ("prover0_channel",)}, {"prover1": ("prover1_channel",)}]
        if not self.params.sequential:
            said = [{**said[0], **said[1]}]
        cycle = [*said, {"verifier": self.message_channel_names}]
        return cycle[round_index % len(cycle)]
