"""Playing episodes: who is asked what, who reads what, and when an episode is over."""

from __future__ import annotations

import pytest

from ludus.arena.protocol import ACCEPT, CONTINUE, REJECT
from ludus.text.rollouts.episodes import to_arrays
from ludus.text.rollouts.play import TextTable
from tests.text.small import (
    ADP,
    DEBATE,
    NIP,
    SOLO,
    Scripted,
    episode,
    handler_of,
    played,
    prompts_of,
)


def test_the_verifier_reads_the_prover_and_its_last_line_decides() -> None:
    handler = handler_of(ADP)
    prover, verifier = Scripted("it is so"), Scripted("I think\nYes.")
    table = TextTable(handler, prompts_of(handler), {"prover": prover, "verifier": verifier})
    (one,) = played(table, [episode()])
    ((asked, _),) = verifier.asked
    assert [tuple(message) for message in asked.prompt] == [
        ("user", "what?\nprover in main: it is so")
    ]
    assert one.rounds[1]["verifier"].decision == ACCEPT
    assert one.is_over
    rollouts = to_arrays([one], handler)
    assert rollouts["agents", "reward"].sum(1).tolist() == [[1.0, 1.0]]


def test_an_episode_goes_on_until_a_decision_and_own_messages_are_those_of_the_assistant() -> None:
    handler = handler_of(NIP)
    prover = Scripted("first", "second")
    verifier = Scripted("why?", "no")
    table = TextTable(handler, prompts_of(handler), {"prover": prover, "verifier": verifier})
    (one,) = played(table, [episode()])
    assert [list(turns) for turns in one.rounds] == [["prover"], ["verifier"]] * 2
    assert [turn.decision for turns in one.rounds for turn in turns.values()] == [
        CONTINUE,
        CONTINUE,
        CONTINUE,
        REJECT,
    ]
    prompt = verifier.asked[1][0].prompt
    assert [message.role for message in prompt] == ["user", "assistant", "user"]
    assert prompt[1].content == "why?"


def test_a_decision_ends_an_episode_early_and_the_arrays_are_padded() -> None:
    handler = handler_of(NIP)
    speakers = {"prover": Scripted("a"), "verifier": Scripted("yes")}
    rollouts = to_arrays(
        played(TextTable(handler, prompts_of(handler), speakers), [episode()]), handler
    )
    assert rollouts["mask"].tolist() == [[True, True, False, False]]
    assert rollouts["done"].tolist() == [[False, True, False, False]]
    assert rollouts["agents", "active"].sum() == 2


def test_agents_that_speak_at_once_do_not_read_each_other_and_provers_read_their_own_channel() -> (
    None
):
    handler = handler_of(DEBATE)
    verifier = Scripted("prover0_channel: zero?\nprover1_channel: one?", "no")
    one, other = Scripted("for zero"), Scripted("for one")
    table = TextTable(
        handler, prompts_of(handler), {"verifier": verifier, "prover0": one, "prover1": other}
    )
    (found,) = played(table, [episode()])
    assert one.asked[0][0].prompt[-1].content == "what?\nverifier in prover0_channel: zero?"
    assert other.asked[0][0].prompt[-1].content == "what?\nverifier in prover1_channel: one?"
    assert "for zero" in verifier.asked[1][0].prompt[-1].content
    assert "for one" in verifier.asked[1][0].prompt[-1].content
    assert found.is_over


def test_episodes_with_the_same_prompt_are_one_request() -> None:
    handler = handler_of(ADP)
    prover, verifier = Scripted("a", "b", "a"), Scripted("yes", "no", "yes")
    table = TextTable(handler, prompts_of(handler), {"prover": prover, "verifier": verifier})
    played(table, [episode(seed=seed) for seed in range(3)])
    assert [count for _, count in prover.asked] == [3]
    assert sorted(count for _, count in verifier.asked) == [1, 2]
    keys = [asked.key for asked, _ in (*prover.asked, *verifier.asked)]
    assert len(set(keys)) == len(keys)


@pytest.mark.covers("002-S14")
def test_an_answer_that_cannot_be_read_is_asked_for_again_alone() -> None:
    handler = handler_of(SOLO)
    verifier = Scripted("yes", "hm", "no", max_retries=1)
    table = TextTable(handler, prompts_of(handler), {"verifier": verifier})
    first, second = played(table, [episode(), episode()])
    assert [count for _, count in verifier.asked] == [2, 1]
    assert second.rounds[0]["verifier"].decision == REJECT
    assert second.rounds[0]["verifier"].retries == 1
    assert second.rounds[0]["verifier"].tokens == 4
    assert first.rounds[0]["verifier"].retries == 0


def test_a_verifier_that_never_decides_has_the_reward_of_rounds_that_ran_out() -> None:
    handler = handler_of(SOLO)
    table = TextTable(handler, prompts_of(handler), {"verifier": Scripted("hm")})
    rollouts = to_arrays(played(table, [episode()]), handler)
    assert rollouts["agents", "malformed"].tolist() == [[[True]]]
    assert rollouts["agents", "reward"].tolist() == [[[-1.0]]]


def test_a_forced_guess_ends_the_episode_and_is_what_is_rewarded() -> None:
    handler = handler_of({**NIP, "force_guess": "y"})
    speakers = {"prover": Scripted("a"), "verifier": Scripted("why?")}
    (one,) = played(TextTable(handler, prompts_of(handler), speakers), [episode(y=1)])
    assert one.is_over
    rollouts = to_arrays([one], handler)
    assert rollouts["verdict"][0, 1] == ACCEPT
    assert rollouts["agents", "reward"][0, 1].tolist() == [1.0, 1.0]


def test_forks_are_the_leaves_of_a_tree_whose_prefixes_agree() -> None:
    handler = handler_of(ADP)
    prover, verifier = Scripted("a", "b"), Scripted("yes", "no", "yes", "no")
    table = TextTable(handler, prompts_of(handler), {"prover": prover, "verifier": verifier})
    leaves = played(table, [episode()], forks=2)
    assert [leaf.path for leaf in leaves] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [leaf.rounds[0]["prover"].text for leaf in leaves] == ["a", "a", "b", "b"]
    assert leaves[0].rounds[0]["prover"] is leaves[1].rounds[0]["prover"]


@pytest.mark.parametrize(("label", "reward"), [(1, 1.0), (0, 0.0)])
def test_a_decision_is_rewarded_where_it_is_right(label: int, reward: float) -> None:
    handler = handler_of(SOLO)
    table = TextTable(handler, prompts_of(handler), {"verifier": Scripted("yes")})
    rollouts = to_arrays(played(table, [episode(y=label)]), handler)
    assert rollouts["agents", "reward"].item() == reward
