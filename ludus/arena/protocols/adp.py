"""The protocol `adp`: a prover speaks once, then the verifier decides."""

from __future__ import annotations

from typing import ClassVar

from ludus.arena.protocol import ProtocolHandler, ProverParameters, Turn
from ludus.config.registry import register


class AdpParameters(ProverParameters):
    """Two rounds: an argument and a decision."""

    num_rounds: ClassVar[int] = 2


@register("protocol", "adp")
class Adp(ProtocolHandler):
    """The prover argues that the label is 1, whatever it is, in one message."""

    Config = AdpParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """One verifier, one prover."""
        return "verifier", "prover"

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the prover, then the verifier."""
        return {"prover" if round_index == 0 else "verifier": ("main",)}
