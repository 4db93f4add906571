"""What each agent gains, by hand, in every branch; the rewards of these protocols all differ."""

from __future__ import annotations

import pytest
import torch

from ludus.arena.protocol import (
    ACCEPT,
    CONTINUE,
    REJECT,
    ProtocolHandler,
    ProtocolParameters,
    Turn,
)
from ludus.config.sections import validate
from ludus.testing.protocols import check_protocol
from tests.arena.protocols.made import gains, protocol, said_by, section

RIGHT, WRONG, RAN_OUT, WENT_ON, CONVINCED = 2.0, -3.0, -5.0, 0.5, 7.0


@pytest.mark.covers("002-S10")
@pytest.mark.parametrize(
    ("decision", "y", "verifier", "prover"),
    [
        (ACCEPT, 1, RIGHT, CONVINCED),
        (ACCEPT, 0, WRONG, CONVINCED),
        (REJECT, 0, RIGHT, 0.0),
        (REJECT, 1, WRONG, 0.0),
        (CONTINUE, 1, WENT_ON, 0.0),
        (CONTINUE, 0, WENT_ON, 0.0),
    ],
)
def test_a_verifier_gains_by_being_right_and_a_prover_by_accept(
    decision: int, y: int, verifier: float, prover: float
) -> None:
    found = gains(protocol("nip"), 1, decision, y)
    assert found == {"verifier": verifier, "prover": prover}


@pytest.mark.covers("002-S10")
@pytest.mark.parametrize("kind", ["debate", "merlin_arthur", "multi_channel_test"])
def test_of_two_opponents_one_gains_by_reject_and_the_other_by_accept(kind: str) -> None:
    handler = protocol(kind)
    last = handler.max_message_rounds - 1
    for y in (0, 1):
        assert gains(handler, last, REJECT, y)["prover0"] == CONVINCED
        assert gains(handler, last, REJECT, y)["prover1"] == 0.0
        assert gains(handler, last, ACCEPT, y)["prover0"] == 0.0
        assert gains(handler, last, ACCEPT, y)["prover1"] == CONVINCED


@pytest.mark.covers("002-S10")
def test_both_provers_of_mnip_gain_by_accept() -> None:
    for decision, gain in ((REJECT, 0.0), (ACCEPT, CONVINCED)):
        found = gains(protocol("mnip"), 3, decision, 0)
        assert (found["prover0"], found["prover1"]) == (gain, gain)


@pytest.mark.covers("002-S10")
@pytest.mark.parametrize("kind", ["solo_verifier", "adp", "merlin_arthur", "nip", "mnip", "debate"])
def test_a_verifier_that_lets_the_rounds_run_out_is_told_so_once(kind: str) -> None:
    handler = protocol(kind)
    last = handler.max_message_rounds - 1
    found = gains(handler, last, CONTINUE, 1)
    assert found.pop("verifier") == RAN_OUT
    assert not any(found.values())


@pytest.mark.covers("002-S10")
@pytest.mark.parametrize("decision", [REJECT, ACCEPT, CONTINUE])
@pytest.mark.parametrize("index", [1, 3])
def test_a_shared_reward_is_the_verifiers_in_every_branch(decision: int, index: int) -> None:
    found = gains(protocol("nip", shared_reward=True), index, decision, 1)
    assert found["prover"] == found["verifier"] != 0.0


@pytest.mark.covers("002-S10")
def test_a_decision_out_of_turn_or_too_early_does_not_count() -> None:
    handler = protocol("nip", min_message_rounds=3)
    for index in (0, 1, 2):
        assert not any(gains(handler, index, ACCEPT, 1).values())
    assert gains(handler, 3, ACCEPT, 1)["verifier"] == RIGHT
    # The round in which it decides is one of those that must have been played.
    assert gains(protocol("nip", min_message_rounds=2), 1, ACCEPT, 1)["verifier"] == RIGHT


def test_nothing_is_gained_and_nothing_ends_when_all_is_over() -> None:
    for kind in ("nip", "zero_knowledge"):
        for decision in (REJECT, ACCEPT, CONTINUE):
            for index in (0, 3):
                assert not any(gains(protocol(kind), index, decision, 1, is_over=True).values())


@pytest.mark.covers("002-D11")
@pytest.mark.parametrize("kind", ["nip", "solo_verifier", "debate", "merlin_arthur"])
@pytest.mark.parametrize(("guess", "forced"), [("zero", (0, 0)), ("one", (1, 1)), ("y", (0, 1))])
def test_a_forced_guess_decides_whatever_was_decided(
    kind: str, guess: str, forced: tuple[int, int]
) -> None:
    handler = protocol(kind, force_guess=guess)
    free = protocol(kind)
    last = handler.max_message_rounds - 1
    for y in (0, 1):
        for decision in (REJECT, ACCEPT, CONTINUE):
            assert gains(handler, last, decision, y) == gains(free, last, forced[y], y)
            outcome = handler.step(
                last,
                said_by(handler, decision),
                torch.tensor([y]),
                torch.tensor([False]),
                torch.tensor([0]),
            )
            assert outcome.terminated.all()
            assert outcome.verdict.tolist() == [forced[y]]


@pytest.mark.covers("002-D11")
def test_a_guess_is_forced_in_the_first_turn_in_which_the_verifier_may_decide() -> None:
    handler = protocol("nip", force_guess="one", max_message_rounds=6, min_message_rounds=3)
    said, y, over = said_by(handler, CONTINUE), torch.tensor([1]), torch.tensor([False])
    ends = [handler.step(index, said, y, over, y).terminated.item() for index in range(4)]
    assert ends == [False, False, False, True]


class TwoJudges(ProtocolHandler):
    """The prover speaks to two judges, who decide in turn; every third episode is not to be decided."""

    agent_names = ("prover", "first", "second")
    verifier_names = ("first", "second")
    num_variants = 3

    def is_judged(self, variant: int) -> bool:
        return variant < 2

    def turn(self, round_index: int, variant: int) -> Turn:
        judge = "second" if round_index == 2 else "first"
        return {"prover": ("main",)} if round_index == 0 else {judge: ("main",)}


def test_the_verdict_is_that_of_whichever_verifier_decides() -> None:
    keys = section("multi_channel_test", max_message_rounds=3)
    handler = TwoJudges(validate(ProtocolParameters, keys, source="the test"))
    check_protocol(handler)
    for index, judge, other in ((1, "first", "second"), (2, "second", "first")):
        found = gains(handler, index, ACCEPT, 1)
        assert found == {"prover": CONVINCED, judge: RIGHT, other: 0.0}
    assert gains(handler, 1, CONTINUE, 1)["first"] == WENT_ON
    assert gains(handler, 2, CONTINUE, 1)["second"] == RAN_OUT
    assert not any(gains(handler, 2, ACCEPT, 1, seed=5).values())
