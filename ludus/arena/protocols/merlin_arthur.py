"""The protocol `merlin_arthur`: one of two provers, chosen by the seed, speaks once; the verifier decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ludus.arena.protocol import ACCEPT, REJECT, ProtocolHandler, ProverParameters, Turn
from ludus.config.registry import register


class MerlinArthurParameters(ProverParameters):
    """Two rounds: an argument of one of two provers, and a decision."""

    num_rounds: ClassVar[int] = 2


@register("protocol", "merlin_arthur")
class MerlinArthur(ProtocolHandler):
    """prover0 argues for 0 and prover1 for 1; the verifier does not know which of them speaks."""

    Config = MerlinArthurParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """One verifier, two provers."""
        return "verifier", "prover0", "prover1"

    @property
    def prover_goals(self) -> Mapping[str, int]:
        """prover0 wants the datum rejected, prover1 accepted."""
        return {"prover0": REJECT, "prover1": ACCEPT}

    @property
    def num_variants(self) -> int:
        """One for each prover: with an even seed prover0 speaks, with an odd one prover1."""
        return 2

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the prover that the seed has chosen, then the verifier."""
        prover = "prover1" if variant == 1 else "prover0"
        return {prover if round_index == 0 else "verifier": ("main",)}
