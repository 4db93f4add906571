"""The protocol `mnip`: a verifier questions two provers apart, who both argue for 1."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.arena.protocol import ProtocolHandler, ProtocolParameters, Turn
from ludus.config.registry import register


class MnipParameters(ProtocolParameters):
    """A verifier and two provers that do not hear each other."""

    verifier_first: bool
    """The verifier asks first; false lets the provers begin."""


@register("protocol", "mnip")
class Mnip(ProtocolHandler):
    """Both provers gain by accept; what one says the other does not read, so that lies may not agree."""

    Config = MnipParameters
    params: MnipParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """One verifier, two provers."""
        return "verifier", "prover0", "prover1"

    @property
    def message_channel_names(self) -> tuple[str, ...]:
        """One for each prover."""
        return "prover0_channel", "prover1_channel"

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """The verifier reads both, each prover its own."""
        return {
            "verifier": self.message_channel_names,
            "prover0": ("prover0_channel",),
            "prover1": ("prover1_channel",),
        }

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the verifier in both channels, and in the rounds between both provers at once."""
        if (round_index % 2 == 0) == self.params.verifier_first:
            return {"verifier": self.message_channel_names}
        return {"prover0": ("prover0_channel",), "prover1": ("prover1_channel",)}
