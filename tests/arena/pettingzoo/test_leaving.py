"""Agents that leave an episode before its end: they act, see, gain and teach nothing more in it.

Shapes: B envs, T steps, A agents.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.arena.playing.columns import to_tensordict
from ludus.arena.playing.rollout import roll_out
from ludus.arena.scenarios.pettingzoo.environment import ParallelEnvironment
from ludus.envs.errors import EnvError
from ludus.seeds import generator
from ludus.testing.trainers import check_kill_anywhere
from tests.arena.pettingzoo.leaving import (
    Leaving,
    LeavingParameters,
    leaving,
    leaving_environment,
    small_leaving,
)
from tests.arena.pettingzoo.made import prepared

FIRST = torch.zeros(1, 3, 2, dtype=torch.int64)
ACCEPTED = ["drops", "keeps telling", "keeps listed", "keeps both", "hides the end"]


def played(made: ParallelEnvironment, num_steps: int) -> list[Any]:
    """Return (moment before, stepped) of so many steps in which everybody takes its first action."""
    moment, found = made.begin(0), []
    for _ in range(num_steps):
        stepped = made.step(moment, FIRST)
        found.append((moment, stepped))
        moment = stepped.moment
    return found


@pytest.mark.filterwarnings("ignore")
def test_the_env_of_these_tests_passes_pettingzoo_s_own_tests() -> None:
    checks = importlib.import_module("pettingzoo.test")
    checks.parallel_api_test(Leaving(LeavingParameters(**leaving())).make(), num_cycles=30)


@pytest.mark.parametrize("manner", ACCEPTED)
def test_who_is_done_acts_no_more_until_all_are_back_in_the_next_episode(manner: str) -> None:
    made = leaving_environment(manner=manner)
    steps = played(made, 8)
    turns = [moment.message_mask[0, :, 0].tolist() for moment, _ in steps]
    every = [True, True, True]
    assert turns == [every, every, [True, False, True], [True, False, False]] * 2
    given = made._slots[0].env.given  # type: ignore[attr-defined]
    all_three = ["one", "three", "two"]
    assert [sorted(actions) for actions in given] == [
        all_three, all_three, ["one", "three"], ["one"],
    ] * 2  # fmt: skip
    assert [stepped.moment.over.tolist() for _, stepped in steps] == [[False]] * 8
    assert made._slots[0].episode == 2


@pytest.mark.parametrize("manner", ACCEPTED)
def test_who_is_gone_gains_nothing_sees_zeros_and_stays_terminated(manner: str) -> None:
    steps = played(leaving_environment(manner=manner, truncated=["two"] * (manner == "drops")), 5)
    rewards = [stepped.rewards[0].tolist() for _, stepped in steps]
    # The reward of the last step counts.
    assert rewards == [[1, 1, 1], [2, 2, 2], [3, 0, 3], [4, 0, 0], [1, 1, 1]]
    done = [stepped.done[0].tolist() for _, stepped in steps]
    assert done == [
        [False, False, False],
        [False, True, False],
        [False, True, True],
        [True, True, True],
        [False, False, False],
    ]
    # Once gone an agent counts as terminated, also where it was truncated.
    assert [stepped.terminated[0, 1].item() for _, stepped in steps] == [
        False, manner != "drops", True, True, False,
    ]  # fmt: skip
    seen = [moment.seen["observation"][0, 1].tolist() for moment, _ in steps]
    assert seen == [[10, 0], [10, 1], [0, 0], [0, 0], [10, 0]]


def test_what_an_agent_sees_last_is_kept_as_what_follows_its_last_step() -> None:
    for manner in ("drops", "hides the end"):
        steps = played(leaving_environment(manner=manner), 4)
        after = [stepped.successor["observation"][0, 1].tolist() for _, stepped in steps]
        # Where nobody looks beyond the end an env need not show it.
        last = [10, 2] if manner == "drops" else [0, 0]
        assert after == [[10, 1], last, [0, 0], [0, 0]]


def test_a_cut_truncates_those_that_are_still_there() -> None:
    steps = played(leaving_environment(last_steps=(9, 1, 9), limit=2), 3)
    (_, first), (_, second), (anew, _) = steps
    assert first.done.tolist() == first.terminated.tolist() == [[False, True, False]]
    assert second.done.tolist() == [[True, True, True]]
    assert second.terminated.tolist() == [[False, True, False]]
    assert second.successor["observation"][0].tolist() == [[0, 2], [0, 0], [20, 2]]
    assert anew.message_mask.all()


def test_an_env_that_has_no_agents_any_more_has_ended() -> None:
    steps = played(leaving_environment(last_steps=(3, 2, 3), manner="empties"), 4)
    done = [stepped.done[0].tolist() for _, stepped in steps]
    assert done[1:] == [[False, True, False], [True, True, True], [False, False, False]]
    assert steps[2][1].terminated.tolist() == [[True, True, True]]


def test_episodes_and_returns_are_counted_to_the_end_of_the_last_agent() -> None:
    # The first agent to leave is the first of all, so its ends are not those of episodes.
    trainer = prepared(small_leaving(leaving((1, 2, 4))))
    found = trainer.environment.statistics(trainer._roll_out(0))
    assert found["episodes"].tolist() == [4.0, 1.0]
    assert [found[f"{name}/return"].tolist() for name in ("one", "two", "three")] == [
        [4.0, 4.0], [12.0, 4.0], [40.0, 4.0],
    ]  # fmt: skip
    assert found["return"].tolist() == [pytest.approx(56.0 / 3), 4.0]


def test_to_judge_an_env_is_over_when_the_last_agent_has_left() -> None:
    trainer = prepared(small_leaving(leaving((1, 2, 4))))
    judged = trainer.scenario_instance.validation_environment
    source = generator(0, "test")
    rollouts = roll_out(
        trainer.agents, judged, judged.begin(0), lambda one: one.drawn(source), num_steps=6
    )
    assert rollouts["mask"].tolist() == [[True] * 4 + [False] * 2] * 2
    turns = rollouts["agents", "message_mask"][0, :, :, 0]
    assert turns.sum(0).tolist() == [1, 2, 4]
    assert trainer.evaluation.validate()["one/return"] == 1.0
    assert trainer.evaluation.validate()["three/return"] == 10.0


@pytest.mark.parametrize("is_cut", [False, True])
def test_advantages_take_nothing_across_the_end_of_an_agent(is_cut: bool) -> None:
    env = leaving((4, 2, 3), truncated=["two"] if is_cut else [])
    trainer = prepared(small_leaving(env, **{"rl.gamma": 0.5, "rl.gae_lambda": 0.25}))
    rollouts = trainer._roll_out(0)
    columns = trainer._estimated(rollouts)
    found_T = columns["agents/advantage"].reshape(2, 8, 3)[0, :, 1]
    value_T = rollouts["agents", "value"][0, :, 1, 0].tolist()
    with torch.no_grad():
        after_T = trainer.agents.value(rollouts["next"].reshape(-1))[:8, 1, 0].tolist()
    # Of four steps of an episode `two` takes two, and gains 1 and 2.
    for first in (0, 4):
        beyond = 0.5 * after_T[first + 1] if is_cut else 0.0
        last = 2.0 + beyond - value_T[first + 1]
        before = 1.0 + 0.5 * after_T[first] - value_T[first] + 0.5 * 0.25 * last
        assert found_T[first : first + 2].tolist() == pytest.approx([before, last], abs=1e-5)
        gone_T = found_T[first + 2 : first + 4].tolist()
        assert gone_T == pytest.approx([-one for one in value_T[first + 2 : first + 4]])


def test_a_policy_learns_nothing_from_steps_in_which_its_agent_is_gone() -> None:
    trainer = prepared(small_leaving(**{"ppo.entropy_coef": 0.01}))
    rows = trainer._filled(trainer._estimated(trainer._roll_out(0)))

    def gradients(change: float) -> list[torch.Tensor]:
        changed = {name: tensor.clone() for name, tensor in rows.items()}
        is_gone_NA = ~changed["agents/message_mask"][..., 0]
        assert is_gone_NA.any()
        changed["agents/advantage"][is_gone_NA] += change
        changed["agents/action_log_prob"][is_gone_NA] -= change
        terms = trainer.loss_module(to_tensordict(changed, 1))
        loss = terms["loss_objective"] + terms["loss_entropy"]
        parameters = list(trainer.agents.parameters())
        return list(torch.autograd.grad(loss, parameters, materialize_grads=True))

    plain = gradients(0.0)
    assert any(one.abs().max() > 0 for one in plain)
    for one, other in zip(plain, gradients(3.0), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("manner", "sentence"),
    [
        ("late", "step 0: 'two' is not among its agents; in the arena every agent is there from"),
        ("stranger", "step 2: 'four' is among its agents and not among its possible_agents"),
        ("comes back", "step 3: 'two' is back after its end"),
        ("goes on", "step 3: 'two' is back after its end"),
        ("vanishes", "step 2: 'two' is not among its agents any more, but neither terminated nor"),
        ("no reward", "step 2: says nothing of 'two' in its rewards"),
    ],
)
def test_what_no_agent_can_live_with_is_told_in_a_sentence(manner: str, sentence: str) -> None:
    made = leaving_environment(manner=manner, last_steps=(9, 2, 9))
    with pytest.raises(EnvError, match=sentence):
        played(made, 6)


def test_who_is_truncated_must_be_shown_what_lies_beyond() -> None:
    made = leaving_environment(manner="no observation", truncated=["two"])
    with pytest.raises(EnvError, match="step 2: says nothing of 'two' in its observations"):
        played(made, 2)


DRAWN = leaving((5, 3, 7), truncated=["three"], is_drawn=True)


def test_a_run_whose_agents_leave_ends_as_if_never_killed(tmp_path: Path) -> None:
    config = small_leaving(DRAWN, limit=6)
    check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=3)


def test_reinforce_learns_from_agents_that_leave_too(tmp_path: Path) -> None:
    example = ludus.example("reinforce")
    once = small_leaving(DRAWN, limit=6).replace(**{"rl.num_epochs": 1})
    config = type(example).like(once, kind="reinforce", reinforce=example.reinforce.model_dump())
    assert ludus.build_trainer(config).fit(root=str(tmp_path)).status == "finished"


def test_what_an_agent_would_see_after_it_has_left_is_no_part_of_its_statistics() -> None:
    trainer = prepared(small_leaving())
    observed = trainer.agents.member("two").body.observed
    # It sees (10, 0) and (10, 1) in each of the two episodes of 4 steps that both envs play.
    assert float(observed.observed_count) == 2 * 2 * 2
    assert observed.observed_mean.tolist() == pytest.approx([10.0, 0.5])


def test_a_value_is_not_trained_in_rows_in_which_its_agent_has_left() -> None:
    trainer = prepared(small_leaving())
    rows = trainer._filled(trainer._estimated(trainer._roll_out(0)))
    there = rows["agents/there"]
    assert there[:, 1].sum() == there[:, 0].sum() / 2
    loss = trainer.loss_module(to_tensordict(rows, 1))["loss_critic"]
    rows["agents/value_target"] = torch.where(there.unsqueeze(-1), rows["agents/value_target"], 1e6)
    assert torch.equal(trainer.loss_module(to_tensordict(rows, 1))["loss_critic"], loss)


def test_who_has_left_is_not_told_of() -> None:
    trainer = prepared(small_leaving())
    lines = trainer.narrate(trainer.weights(), 0)
    assert ["two takes" in line for line in lines] == [True, True, False, False, False]
