"""The protocol `nip`: a verifier and one prover speak in turn, until the verifier decides."""

from __future__ import annotations

from ludus.arena.protocol import ProtocolHandler, ProtocolParameters, Turn
from ludus.config.registry import register


class NipParameters(ProtocolParameters):
    """A verifier and a prover, in turn."""

    verifier_first: bool
    """The verifier speaks first; false: the prover begins."""


@register("protocol", "nip")
class Nip(ProtocolHandler):
    """The prover argues that the label is 1, whatever it is; the verifier asks, and decides."""

    Config = NipParameters
    params: NipParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """One verifier, one prover."""
        return "verifier", "prover"

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the verifier in even rounds if it is first, else in odd ones."""
        is_verifiers = (round_index % 2 == 0) == self.params.verifier_first
        return {"verifier" if is_verifiers else "prover": ("main",)}
