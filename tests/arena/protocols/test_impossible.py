"""What cannot be played is refused in a sentence with the remedy, before anything is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ludus.arena.protocol import ProtocolHandler, Turn
from ludus.arena.protocols._table import Nip, NipParameters
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.protocols.made import protocol, section


@pytest.mark.covers("002-S9")
@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("nip", {"verifier_first": True, "max_message_rounds": 4}, "set it to 3 or 5"),
        ("nip", {"verifier_first": False, "max_message_rounds": 1}, "set it to 2"),
        ("mnip", {"verifier_first": True, "max_message_rounds": 2}, "set it to 1 or 3"),
        ("debate", {"sequential": True, "max_message_rounds": 4}, "set it to 3 or 6"),
        ("debate", {"sequential": True, "max_message_rounds": 2}, "set it to 3"),
        ("debate", {"sequential": False, "max_message_rounds": 3}, "set it to 2 or 4"),
        ("debate", {"verifier_first": True, "max_message_rounds": 6}, "set it to 4 or 7"),
        ("mnip", {"sequential": True, "max_message_rounds": 4}, "set it to 3 or 6"),
        ("multi_channel_test", {"max_message_rounds": 5}, "set it to 4 or 6"),
        ("nip", {"min_message_rounds": 5}, "'min_message_rounds' is 5.*lower it"),
        ("nip", {"min_message_rounds": 3, "max_message_rounds": 3}, "set it to 4"),
    ],
)
def test_a_length_at_which_nobody_decides_last_is_refused(
    kind: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        protocol(kind, **changes)


@pytest.mark.parametrize("kind", ["debate", "mnip"])
def test_an_order_of_provers_is_asked_for_just_where_there_is_one(kind: str) -> None:
    with pytest.raises(ConfigError, match="'prover0_first' is true, but 'sequential' is false"):
        protocol(kind, sequential=False, prover0_first=True)
    with pytest.raises(ConfigError, match="'prover0_first' is null, but 'sequential' is true"):
        protocol(kind, sequential=True, prover0_first=None)


def test_a_length_of_billions_of_rounds_is_judged_at_once() -> None:
    with pytest.raises(ConfigError, match="set it to 1000000000000 or 1000000000002"):
        protocol("nip", max_message_rounds=10**12 + 1)


def test_zero_knowledge_needs_a_protocol_with_a_prover_that_can_be_played() -> None:
    for base, told in (
        (section("solo_verifier"), "has no prover whose knowledge"),
        (section("zero_knowledge"), "is zero_knowledge itself"),
        (section("nip", max_message_rounds=3), "'base': 'max_message_rounds' is 3"),
    ):
        with pytest.raises(ConfigError, match=told):
            protocol("zero_knowledge", base=base)


@pytest.mark.parametrize("kind", ["solo_verifier", "adp", "merlin_arthur"])
def test_a_protocol_of_fixed_length_has_no_key_for_it(kind: str) -> None:
    with pytest.raises(ConfigError, match="'max_message_rounds' is not a key here"):
        protocol(kind, max_message_rounds=2)


class _Unplayable(Nip):
    """Nip, with one of its answers replaced."""

    answers: dict[str, Any] = {}

    def turn(self, round_index: int, variant: int) -> Turn:
        found: Turn = self.answers.get("turn") or super().turn(round_index, variant)
        return found


def _replaced(**answers: object) -> type[ProtocolHandler]:
    class Replaced(_Unplayable):
        pass

    Replaced.answers = dict(answers)
    for name, value in answers.items():
        if name != "turn":
            setattr(Replaced, name, property(lambda self, value=value: value))
    return Replaced


ROWS: Mapping[str, tuple[str, ...]] = {"verifier": ("main",), "prover": ("main",)}


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"agent_names": ("verifier", "prover", "prover")}, "two agents named 'prover'"),
        ({"message_channel_names": ("main", "main")}, "two channels named 'main'"),
        ({"verifier_names": ()}, "has no verifier"),
        ({"verifier_names": ("verifyer",)}, "the agent 'verifyer'.*Did you mean 'verifier'"),
        ({"prover_names": ("nobody",)}, "prover_names names the agent 'nobody'"),
        ({"prover_goals": {}}, "prover_goals says nothing of 'prover'"),
        ({"prover_goals": {"prover": 2}}, "give REJECT or ACCEPT"),
        ({"agent_channel_visibility": {"verifier": ("main",)}}, "says nothing of 'prover'"),
        ({"agent_channel_visibility": {**ROWS, "prover": ("mane",)}}, "Did you mean 'main'"),
        ({"agent_channel_visibility": {**ROWS, "prover": ()}}, "'main', which it may not read"),
        ({"stackelberg_sequence": (("verifier",),)}, "must hold each agent once"),
        ({"turn": {"judge": ("main",)}}, "names the agent 'judge'"),
        ({"turn": {"verifier": ("side",)}}, "names the channel 'side'"),
        ({"turn": ROWS}, "both speak in 'main'"),
        ({"turn": {"prover": ("main",)}}, "no verifier ever has a turn"),
        (
            {
                "verifier_names": ("verifier", "prover"),
                "prover_names": (),
                "turn": {"verifier": (), "prover": ()},
            },
            "both decide",
        ),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(answers: dict[str, Any], told: str) -> None:
    params = validate(NipParameters, section("nip"), source="the test")
    with pytest.raises(ConfigError, match=told):
        _replaced(**answers)(params)


def test_a_round_that_is_nobodys_is_refused() -> None:
    class Silent(Nip):
        def turn(self, round_index: int, variant: int) -> Turn:
            return {} if round_index == 2 else super().turn(round_index, variant)

    params = validate(NipParameters, section("nip"), source="the test")
    with pytest.raises(ConfigError, match="round 2 of variant 0: it is nobody's turn"):
        Silent(params)


def test_the_last_round_of_a_long_protocol_is_looked_at_too() -> None:
    class LateQuarrel(Nip):
        def turn(self, round_index: int, variant: int) -> Turn:
            return ROWS if round_index == 99 else super().turn(round_index, variant)

    params = validate(NipParameters, section("nip", max_message_rounds=100), source="the test")
    with pytest.raises(ConfigError, match=r"round 99 of variant 0.*both speak in 'main'"):
        LateQuarrel(params)
