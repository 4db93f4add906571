"""The protocol `mnip`: a verifier questions two separate provers, who both argue for 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ludus.arena.protocol import ProtocolHandler, ProtocolParameters, Turn
from ludus.arena.two_provers import problems_of_order, prover_turns
from ludus.config.registry import register


class MnipParameters(ProtocolParameters):
    """A verifier and two provers that do not read each other's messages."""

    verifier_first: bool
    """The verifier asks first; false: the provers begin."""
    sequential: bool
    """One prover speaks, then the other; false: both speak in the same round."""
    prover0_first: bool | None
    """Of two sequential provers, prover0 is the first; null where they speak simultaneously."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make meaningless."""
        yield from super().problems()
        yield from problems_of_order(self.sequential, self.prover0_first)


@register("protocol", "mnip")
class Mnip(ProtocolHandler):
    """Both provers are rewarded for accept; neither reads the other's messages, so that lies may
    not agree."""

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
        """Return the verifier in both channels, and in the rounds between the provers."""
        params = self.params
        said = prover_turns(params.sequential, params.prover0_first)
        asks: Turn = {"verifier": self.message_channel_names}
        cycle = [asks, *said] if params.verifier_first else [*said, asks]
        return cycle[round_index % len(cycle)]
