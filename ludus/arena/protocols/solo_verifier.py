"""The protocol `solo_verifier`: the verifier decides alone, immediately; nobody speaks."""

from __future__ import annotations

from ludus.arena.protocol import ProtocolHandler, Turn, VerifierParameters
from ludus.config.registry import register


class SoloVerifierParameters(VerifierParameters):
    """One round, one agent."""


@register("protocol", "solo_verifier")
class SoloVerifier(ProtocolHandler):
    """A verifier without provers: the baseline of the other protocols."""

    Config = SoloVerifierParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The verifier alone."""
        return ("verifier",)

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the verifier, which is active though it speaks in no channel."""
        return {"verifier": ()}
