"""Protocols that only say who speaks when and what for; one that needs more code is a file of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

from ludus.arena.protocol import (
    ACCEPT,
    REJECT,
    ProtocolHandler,
    ProtocolParameters,
    ProverParameters,
    Turn,
    VerifierParameters,
)
from ludus.config.registry import register

_PAIR = ("verifier", "prover")
_THREE = ("verifier", "prover0", "prover1")
_OPPOSED = MappingProxyType({"prover0": REJECT, "prover1": ACCEPT})
_OWN = MappingProxyType({"prover0": ("prover0_channel",), "prover1": ("prover1_channel",)})


class SoloVerifierParameters(VerifierParameters):
    """One round, one agent."""


@register("protocol", "solo_verifier")
class SoloVerifier(ProtocolHandler):
    """A verifier that decides alone, immediately; nobody speaks: the baseline of the other protocols."""

    Config = SoloVerifierParameters
    agent_names = ("verifier",)

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the verifier, which is active though it speaks in no channel."""
        return {"verifier": ()}


class AdpParameters(ProverParameters):
    """Two rounds: an argument and a decision."""

    num_rounds: ClassVar[int] = 2


@register("protocol", "adp")
class Adp(ProtocolHandler):
    """The prover argues that the label is 1, whatever it is, in one message; then the verifier decides."""

    Config = AdpParameters
    agent_names = _PAIR

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the prover, then the verifier."""
        return {"prover" if round_index == 0 else "verifier": ("main",)}


class NipParameters(ProtocolParameters):
    """A verifier and a prover, in turn."""

    verifier_first: bool
    """The verifier speaks first; false: the prover begins."""


@register("protocol", "nip")
class Nip(ProtocolHandler):
    """The prover argues that the label is 1, whatever it is; the verifier asks, and decides."""

    Config = NipParameters
    params: NipParameters
    agent_names = _PAIR

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the verifier in even rounds if it is first, else in odd ones."""
        is_verifiers = (round_index % 2 == 0) == self.params.verifier_first
        return {"verifier" if is_verifiers else "prover": ("main",)}


class MerlinArthurParameters(ProverParameters):
    """Two rounds: an argument of one of two provers, and a decision."""

    num_rounds: ClassVar[int] = 2


@register("protocol", "merlin_arthur")
class MerlinArthur(ProtocolHandler):
    """One of two provers speaks once: with an even seed prover0, for 0, with an odd one prover1, for 1.

    The verifier does not know which of them speaks.
    """

    Config = MerlinArthurParameters
    agent_names, prover_goals = _THREE, _OPPOSED
    num_variants = 2

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the prover that the seed has chosen, then the verifier."""
        prover = "prover1" if variant == 1 else "prover0"
        return {prover if round_index == 0 else "verifier": ("main",)}


class MnipParameters(ProtocolParameters):
    """A verifier, and two provers that each have their own channel."""

    verifier_first: bool
    """The verifier speaks first; false: the provers begin."""
    sequential: bool
    """One prover speaks, then the other; false: both speak in the same round, so that neither answers the
    other's newest message.
    """
    prover0_first: bool | None
    """Of two sequential provers, prover0 is the first; null where they speak simultaneously."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make meaningless."""
        yield from super().problems()
        if self.sequential and self.prover0_first is None:
            yield (
                "'prover0_first' is null, but 'sequential' is true, so one prover speaks first; set it to"
                " true or false"
            )
        if not self.sequential and self.prover0_first is not None:
            yield (
                f"'prover0_first' is {str(self.prover0_first).lower()}, but 'sequential' is false, so both"
                " provers speak at once; set it to null"
            )


@register("protocol", "mnip")
class Mnip(ProtocolHandler):
    """A verifier questions two provers, who both argue for 1.

    Neither prover reads the other's messages, so that lies may not agree.
    """

    Config: ClassVar[type[MnipParameters]] = MnipParameters
    params: MnipParameters
    agent_names = _THREE
    message_channel_names = ("prover0_channel", "prover1_channel")

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """The verifier reads both channels, each prover its own."""
        return {"verifier": self.message_channel_names, **_OWN}

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the verifier in both channels, and between two of its rounds the provers."""
        params = self.params
        one, other = ({name: own} for name, own in _OWN.items())
        said: list[Turn] = [one, other] if params.prover0_first else [other, one]
        said = said if params.sequential else [_OWN]
        asks: Turn = {"verifier": self.message_channel_names}
        cycle = [asks, *said] if params.verifier_first else [*said, asks]
        return cycle[round_index % len(cycle)]


class DebateParameters(MnipParameters):
    """Two opposing provers, and a verifier that answers both."""

    provers_hear_each_other: bool
    """Each prover reads the other's channel too, as in a public debate; false: separate, like
    witnesses.
    """


@register("protocol", "debate")
class Debate(Mnip):
    """prover0 argues for 0 and prover1 for 1, each in its own channel; the verifier speaks in both."""

    Config = DebateParameters
    params: DebateParameters
    prover_goals = _OPPOSED

    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]:
        """The verifier reads both; a prover its own, and the other's where they hear each other."""
        if self.params.provers_hear_each_other:
            return dict.fromkeys(self.agent_names, self.message_channel_names)
        return super().agent_channel_visibility


class MultiChannelTestParameters(ProtocolParameters):
    """Two provers, a verifier and three channels."""


@register("protocol", "multi_channel_test")
class MultiChannelTest(ProtocolHandler):
    """Channels of every kind of visibility, to test agents and trainers on.

    All read one, prover0 and the verifier another, and the verifier does not read the third.
    """

    Config = MultiChannelTestParameters
    agent_names, prover_goals = _THREE, _OPPOSED
    message_channel_names = ("public", "private", "provers")
    agent_channel_visibility = MappingProxyType(
        {
            "verifier": ("public", "private"),
            "prover0": ("public", "private", "provers"),
            "prover1": ("public", "provers"),
        }
    )

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return the provers simultaneously, one in two channels, then the verifier in the two that it
        reads."""
        if round_index % 2 == 0:
            return {"prover0": ("public", "private"), "prover1": ("provers",)}
        return {"verifier": ("public", "private")}
