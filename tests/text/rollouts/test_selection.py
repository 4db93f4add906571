"""What agents learn from: selected episodes, replaced guesses, and pairs of answers in a tree."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ludus.arena.protocol import ACCEPT, REJECT
from ludus.text.expert_iteration.config import (
    GuessReplacement,
    ThresholdSelection,
    WeightedSelection,
)
from ludus.text.expert_iteration.selection import (
    conversations,
    replace_guesses,
    select,
    selection_weights,
)
from ludus.text.malt.tree import children, preference_pairs
from ludus.text.rollouts.episodes import to_arrays
from ludus.text.rollouts.play import TextTable
from ludus.text.rollouts.statistics import rollout_statistics
from tests.text.small import ADP, NIP, SOLO, Scripted, episode, handler_of, played, prompts_of


def tree(verdicts: str, labels: tuple[int, ...] = (1,)):
    """Return the arrays of trees of two answers a turn; `verdicts` has a letter, y or n, for each leaf."""
    handler = handler_of({**ADP, "shared_reward": True})
    words = iter({"y": "yes", "n": "no"}[letter] for letter in verdicts)
    leaves = []
    for group, label in enumerate(labels):
        speakers = {
            "prover": Scripted("a", "b"),
            "verifier": Scripted(*(next(words) for _ in range(4))),
        }
        table = TextTable(handler, prompts_of(handler), speakers)
        leaves += played(table, [episode(label, group=group)], forks=2)
    return to_arrays(leaves, handler), handler


@pytest.mark.covers("002-S6")
def test_a_threshold_takes_the_episodes_with_at_least_that_reward() -> None:
    section = ThresholdSelection(kind="threshold", reward_threshold=0.9)
    assert select(np.array([1.0, 0.9, 0.0, 2.0]), section, np.random.default_rng(0)) == [0, 1, 3]


@pytest.mark.covers("002-S6")
def test_weights_are_the_rewards_above_the_lowest_with_a_little_for_all() -> None:
    found = selection_weights(np.array([-1.0, 0.0, 1.0, 1.0]), 0.4)
    # (0, 1, 2, 2) / 5 + 0.1, over their sum of 1.4.
    assert found == pytest.approx(np.array([0.1, 0.3, 0.5, 0.5]) / 1.4)


@pytest.mark.covers("002-D1")
def test_equal_rewards_have_equal_weights_and_the_draws_follow_from_the_generator() -> None:
    assert selection_weights(np.array([2.0, 2.0]), 0.0).tolist() == [0.5, 0.5]
    section = WeightedSelection(kind="weighted", size_factor=0.5, epsilon=0.0)
    rewards = np.array([0.0, 1.0, 0.0, 0.0, 3.0, 0.0])
    first = select(rewards, section, np.random.default_rng(5))
    assert len(first) == 3
    assert set(first) <= {1, 4}
    assert first == select(rewards, section, np.random.default_rng(5))


def test_conversations_are_what_the_agent_was_asked_and_said() -> None:
    rollouts, handler = tree("ynny")
    (whole, *_) = conversations(rollouts, handler, "verifier", [2])
    assert [message.content for message in whole] == ["what?\nprover in main: b", "no"]
    assert whole[-1].role == "assistant"


def test_replaced_guesses_are_right_rewarded_and_leave_the_rollouts_as_they_were() -> None:
    rollouts, handler = tree("nnny")
    before = rollouts.clone()
    section = GuessReplacement(proportion=1.0, annealing="none", rate=0.0)
    prompts = prompts_of(handler)
    found = replace_guesses(rollouts, handler, prompts, section, 3, np.random.default_rng(0))
    assert found["agents", "text"][:, 1, 0].tolist() == ["yes"] * 4
    assert found["agents", "reward"].sum(1)[:, 0].tolist() == [1.0] * 4
    assert rollouts == before
    none = section.model_copy(update={"proportion": 0.0})
    assert replace_guesses(rollouts, handler, prompts, none, 0, np.random.default_rng(0)) == before


@pytest.mark.covers("002-S6")
@pytest.mark.parametrize(
    ("annealing", "rate", "shares"),
    [
        ("none", 0.0, [0.8, 0.8, 0.8]),
        ("linear", 0.3, [0.8, 0.5, 0.2]),
        ("linear", 0.5, [0.8, 0.3, 0.0]),
        ("exponential", 0.5, [0.8, 0.4, 0.2]),
    ],
)
def test_the_share_of_replaced_guesses_is_annealed(annealing, rate: float, shares) -> None:
    section = GuessReplacement(proportion=0.8, annealing=annealing, rate=rate)
    assert [section.share(t) for t in range(3)] == pytest.approx(shares)


@pytest.mark.covers("002-S7")
def test_the_value_of_an_answer_is_the_mean_reward_of_the_leaves_below_it() -> None:
    rollouts, handler = tree("yynn")
    values = {t: [one.value for one in forks] for t, forks in children(rollouts, handler, "prover")}
    assert values == {0: [1.0, 0.0]}
    rows = [[one.value for one in forks] for _, forks in children(rollouts, handler, "verifier")]
    assert rows == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.covers("002-D13")
def test_the_first_message_of_a_conversation_has_a_pair_too() -> None:
    rollouts, handler = tree("yyyn")
    (pair,) = preference_pairs(rollouts, handler, "verifier", np.random.default_rng(0))
    assert (pair.better, pair.worse) == ("yes", "no")
    assert pair.prompt[-1].content == "what?\nprover in main: b"
    rollouts, handler = tree("yynn")
    (pair,) = preference_pairs(rollouts, handler, "prover", np.random.default_rng(0))
    assert (pair.better, pair.worse) == ("a", "b")
    assert pair.prompt[-1].content == "what?"


def test_the_same_question_twice_in_an_iteration_is_two_trees() -> None:
    rollouts, handler = tree("yynnnnyy", labels=(1, 1))
    found = preference_pairs(rollouts, handler, "prover", np.random.default_rng(0))
    assert [(pair.better, pair.worse) for pair in found] == [("a", "b"), ("b", "a")]


def test_an_answer_that_ends_an_episode_counts_as_much_as_one_that_others_follow() -> None:
    """Of two replies of the verifier one decides wrongly at once, the other goes on to four right leaves."""
    handler = handler_of({**NIP, "verifier_first": True, "max_message_rounds": 3})
    speakers = {
        "verifier": Scripted("no", "why?", *["yes"] * 4),
        "prover": Scripted("a", "b"),
    }
    leaves = played(TextTable(handler, prompts_of(handler), speakers), [episode(1)], forks=2)
    rollouts = to_arrays(leaves, handler)
    root, *_ = children(rollouts, handler, "verifier")
    assert [one.value for one in root[1]] == [0.0, 1.0]
    weights = [2.0 ** -len(leaf.path) for leaf in leaves]
    assert sum(weights) == 1.0


def test_a_tree_in_which_all_is_equal_teaches_nothing() -> None:
    rollouts, handler = tree("yyyy")
    assert preference_pairs(rollouts, handler, "verifier", np.random.default_rng(0)) == []


@pytest.mark.covers("002-D12", "002-S14")
def test_statistics_are_means_over_what_there_is_and_never_divide_by_zero() -> None:
    handler = handler_of(SOLO)
    table = TextTable(handler, prompts_of(handler), {"verifier": Scripted("no", "no", "hm", "no")})
    games = [episode(y, index=index) for index, y in enumerate((0, 1, 1))]
    rollouts = to_arrays([*played(table, games), *played(table, [episode(0)])], handler)
    found = rollout_statistics(rollouts, handler)
    assert found["verifier/accuracy"] == found["accuracy"] == 0.5
    assert found["verifier/accuracy_of_0"] == 1.0
    assert found["verifier/accuracy_of_1"] == 0.0
    assert found["verifier/recall"] == 0.0
    assert "verifier/precision" not in found  # nothing was accepted
    assert found["timed_out"] == found["verifier/malformed"] == 0.25
    assert found["verifier/accuracy_worst"] == 0.0
    # The mean accuracy of questions 0, 1 and 2 is 1, 0, 0.
    assert found["verifier/accuracy_std"] == pytest.approx(np.std([1.0, 0.0, 0.0]))
    assert found["verifier/reward"] == pytest.approx((1.0 + 0.0 - 1.0 + 1.0) / 4)


def test_prompts_in_rollouts_are_json() -> None:
    rollouts, _ = tree("ynny")
    assert json.loads(str(rollouts["agents", "prompt"][0, 0, 1])) == [["user", "what?"]]


def test_decisions_are_those_of_the_protocol() -> None:
    rollouts, _ = tree("ynny")
    assert rollouts["verdict"][:, 1].tolist() == [ACCEPT, REJECT, REJECT, ACCEPT]
