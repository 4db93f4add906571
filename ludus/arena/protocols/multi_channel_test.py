"""The protocol `multi_channel_test`: channels of every kind of visibility, to test agents and trainers on."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.arena.protocol import ACCEPT, REJECT, ProtocolHandler, ProtocolParameters, Turn
from ludus.config.registry import register


class MultiChannelTestParameters(ProtocolParameters):
    """Two provers, a verifier and three channels."""


@register("protocol", "multi_channel_test")
class MultiChannelTest(ProtocolHandler):
    """One channel that all read, one of prover0 and the verifier, and one that the verifier does not read."""

    Config = MultiChannelTestParameters

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
        """Of all, of the verifier and prover0, of the provers."""
        return "public", "private", "provers"

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """Each reads two of them at least, and only prover0 all three."""
        return {
            "verifier": ("public", "private"),
            "prover0": ("public", "private", "provers"),
            "prover1": ("public", "provers"),
        }

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the provers simultaneously, one in two channels, then the verifier in the two that it
        reads."""
        if round_index % 2 == 0:
            return {"prover0": ("public", "private"), "prover1": ("provers",)}
        return {"verifier": ("public", "private")}
