"""Who speaks to whom and when, protocol by protocol, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.config.families import listed
from tests.arena.protocols.made import OWN, order, protocol, said_by, section

BOTH = "verifier:prover0_channel verifier:prover1_channel"


@pytest.mark.covers("002-S9")
def test_the_protocols_are_those_of_the_registry() -> None:
    assert sorted(listed("protocol")) == sorted([*OWN, "parallel", "zero_knowledge"])


def test_in_nip_the_verifier_begins_or_the_prover() -> None:
    asked = protocol("nip", verifier_first=True, max_message_rounds=3)
    assert order(asked) == ["verifier:main", "prover:main", "verifier:main"]
    told = protocol("nip", verifier_first=False, max_message_rounds=4)
    assert order(told) == ["prover:main", "verifier:main"] * 2


def test_in_adp_the_prover_speaks_once_and_the_verifier_decides() -> None:
    handler = protocol("adp")
    assert order(handler) == ["prover:main", "verifier:main"]
    assert (handler.min_message_rounds, handler.max_message_rounds) == (2, 2)


def test_a_solo_verifier_is_active_and_decides_though_nobody_speaks() -> None:
    handler = protocol("solo_verifier")
    assert order(handler) == [""]
    assert handler.acting(0) == (0,)
    assert handler.deciders(0, torch.arange(3)).all()
    assert handler.stackelberg_sequence == (("verifier",),)


def test_a_sequential_debate_lets_the_second_prover_answer_the_first() -> None:
    one, other = "prover0:prover0_channel", "prover1:prover1_channel"
    assert order(protocol("debate", sequential=True)) == [one, other, BOTH] * 2
    at_once = protocol("debate", sequential=False, max_message_rounds=4)
    assert order(at_once) == [f"{one} {other}", BOTH] * 2


@pytest.mark.parametrize("kind", ["debate", "mnip"])
@pytest.mark.parametrize("prover0_first", [True, False])
def test_of_two_provers_either_may_speak_first_before_the_verifier_or_after(
    kind: str, prover0_first: bool
) -> None:
    one, other = "prover0:prover0_channel", "prover1:prover1_channel"
    said = [one, other] if prover0_first else [other, one]
    asked: dict[str, Any] = {"sequential": True, "prover0_first": prover0_first}
    told = protocol(kind, **asked, verifier_first=False, max_message_rounds=6)
    assert order(told) == [*said, BOTH] * 2
    questioned = protocol(kind, **asked, verifier_first=True, max_message_rounds=7)
    assert order(questioned) == [BOTH, *said, BOTH, *said, BOTH]
    at_once = protocol(kind, sequential=False, verifier_first=True, max_message_rounds=3)
    assert order(at_once) == [BOTH, f"{one} {other}", BOTH]


def test_debaters_hear_each_other_or_do_not() -> None:
    both = ("prover0_channel", "prover1_channel")
    heard = protocol("debate", provers_hear_each_other=True).agent_channel_visibility
    assert heard == {"verifier": both, "prover0": both, "prover1": both}
    apart = protocol("debate", provers_hear_each_other=False).agent_channel_visibility
    assert apart == {"verifier": both, "prover0": both[:1], "prover1": both[1:]}


@pytest.mark.covers("002-D11")
def test_of_merlin_and_arthur_an_odd_seed_lets_prover1_speak() -> None:
    handler = protocol("merlin_arthur")
    assert order(handler, seed=4) == ["prover0:main", "verifier:main"]
    assert order(handler, seed=7) == ["prover1:main", "verifier:main"]
    assert handler.acting(0) == (1, 2)


def test_mnip_questions_two_provers_apart() -> None:
    provers = "prover0:prover0_channel prover1:prover1_channel"
    assert order(protocol("mnip")) == [provers, BOTH] * 2
    asked = protocol("mnip", verifier_first=True, max_message_rounds=3)
    assert order(asked) == [BOTH, provers, BOTH]
    assert asked.agent_channel_visibility["prover0"] == ("prover0_channel",)
    assert asked.agent_channel_visibility["prover1"] == ("prover1_channel",)
    assert asked.agent_channel_visibility["verifier"] == asked.message_channel_names


def test_the_protocol_for_tests_has_a_channel_that_the_verifier_does_not_read() -> None:
    handler = protocol("multi_channel_test", max_message_rounds=2)
    assert order(handler) == [
        "prover0:public prover0:private prover1:provers",
        "verifier:public verifier:private",
    ]
    seen = handler.visibility(torch.device("cpu")).tolist()
    assert seen == [[True, True, False], [True, True, True], [True, False, True]]


@pytest.mark.parametrize("kind", ["nip", "debate", "mnip", "merlin_arthur", "adp"])
def test_the_verifier_leads_and_the_provers_follow(kind: str) -> None:
    handler = protocol(kind)
    assert handler.stackelberg_sequence == (("verifier",), handler.prover_names)
    assert handler.verifier_names == ("verifier",)
    assert handler.agent_names == ("verifier", *handler.prover_names)


def test_no_tensor_is_made_anew_in_a_round_that_was_played_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = protocol("zero_knowledge", base=section("merlin_arthur"))
    seed_B = torch.arange(4)
    over_B, action_BAK = seed_B > 4, said_by(handler, 1, 4)
    first = handler.step(1, action_BAK, seed_B % 2, over_B, seed_B)
    # What is made of numbers of the host waits for the device.
    monkeypatch.setattr(torch, "tensor", None)
    again = handler.step(1, action_BAK, seed_B % 2, over_B, seed_B)
    assert torch.equal(first.rewards, again.rewards)
