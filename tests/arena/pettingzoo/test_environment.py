"""Parallel envs side by side: seeds, ends, what each agent sees and does.

Shapes: B envs, T steps, A agents.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from ludus.arena.parallel_envs.coordination import Coordination, CoordinationEnv
from ludus.arena.parallel_envs.gymnasium import GymnasiumEnv, GymnasiumParameters
from ludus.arena.playing.rollout import roll_out
from ludus.seeds import generator
from tests.arena.pettingzoo.made import VECTOR, environment, prepared, small_counting, small_env
from tests.arena.sections import parts

FIRST = torch.zeros(2, 2, 2, dtype=torch.int64)


def cartpole() -> GymnasiumEnv:
    return GymnasiumEnv(GymnasiumParameters(kind="gymnasium", id="CartPole-v1"))


@pytest.mark.filterwarnings("ignore")
def test_the_envs_of_ludus_pass_pettingzoo_s_own_tests() -> None:
    # Imported here, where its own deprecations are no errors.
    checks = importlib.import_module("pettingzoo.test")
    checks.parallel_api_test(CoordinationEnv(7, 2), num_cycles=30)
    checks.parallel_api_test(cartpole().make(), num_cycles=30)
    checks.parallel_seed_test(lambda: CoordinationEnv(7, 2), num_cycles=10)


def test_coordination_gains_half_a_point_for_each_who_chose_what_is_asked_for() -> None:
    env = Coordination(
        Coordination.Config(kind="coordination", num_steps=3, request_lasts=2)
    ).make()
    env.reset(seed=1)
    asked, other = env.asked, (env.asked + 1) % 4
    seen, gains, *_ = env.step({"row": asked, "column": other})
    assert gains == {"row": 0.5, "column": 0.5}
    assert (seen["row"][0], seen["column"][0]) == (asked // 2, asked % 2)
    assert np.flatnonzero(seen["row"][1:]).tolist() == [asked, 4 + other]
    assert env.step({"row": asked, "column": asked})[1] == {"row": 1.0, "column": 1.0}
    assert env._seen()["row"][1:].sum() == 0.0
    *_, ends, cuts, _ = env.step({"row": 0, "column": 0})
    assert (set(ends.values()), set(cuts.values()), env.agents) == ({True}, {False}, [])


def test_an_episode_follows_from_seed_iteration_env_and_its_number() -> None:
    made = environment(num_steps=7)

    def seeds(iteration: int) -> list[float]:
        found, moment = [], made.begin(iteration)
        for _ in range(7):
            found += moment.seen["observation"][:, 0, 0].tolist()
            moment = made.step(moment, FIRST).moment
        return found

    first = seeds(0)
    # Two envs with three episodes each, of three steps.
    assert len(set(first)) == 6
    assert not set(first) & set(seeds(1))
    assert seeds(0) == first
    assert not set(first) & set(environment(seed=1).begin(0).seen["observation"][:, 0, 0].tolist())


def test_where_an_episode_ends_the_next_begins_and_what_it_ended_with_is_kept() -> None:
    made = environment(num_steps=4)
    moment = made.begin(0)
    for count in (1, 2, 3):
        stepped = made.step(moment, FIRST)
        assert stepped.successor["observation"][0, 1, 0] == count
        assert stepped.done.tolist() == [[count == 3] * 2] * 2
        assert stepped.terminated.tolist() == [[count == 3] * 2] * 2
        moment = stepped.moment
    assert moment.seen["observation"][:, 1, 0].tolist() == [0.0, 0.0]
    assert not moment.over.any()


def test_a_cut_episode_is_done_and_has_not_terminated() -> None:
    made = environment(num_steps=4, limit=2)
    first = made.step(made.begin(0), FIRST)
    second = made.step(first.moment, FIRST)
    assert first.done.tolist() == [[False] * 2] * 2
    assert second.done.tolist() == [[True] * 2] * 2
    assert second.terminated.tolist() == [[False] * 2] * 2
    assert second.moment.seen["observation"][0, 1, 0] == 0.0


@pytest.mark.parametrize(("limit", "is_terminal"), [(100, True), (3, False)])
def test_advantages_reach_beyond_a_cut_and_not_beyond_an_end(limit: int, is_terminal: bool) -> None:
    steps = 3 if is_terminal else 50
    trainer = prepared(small_counting({"kind": "tests_counting", "num_steps": steps, "fault": "none"},
                                      limit, **{"rl.gamma": 0.5, "rl.gae_lambda": 0.25}))  # fmt: skip
    rollouts = trainer._roll_out(0)
    columns = trainer._estimated(rollouts)
    values_BT = rollouts["agents", "value"][..., 0, 0]
    with torch.no_grad():
        after = trainer.agents.value(rollouts["next"].reshape(-1))[:, 0, 0].reshape(2, 8)
    rewards_BT = rollouts["next", "agents", "reward"][..., 0, 0]
    expected_BT, later_B = torch.zeros(2, 8), torch.zeros(2)
    for step in reversed(range(8)):
        ends = step in (2, 5)
        beyond_B = torch.zeros(2) if ends and is_terminal else after[:, step]
        delta_B = rewards_BT[:, step] + 0.5 * beyond_B - values_BT[:, step]
        later_B = delta_B + (0.0 if ends else 0.5 * 0.25) * later_B
        expected_BT[:, step] = later_B
    found_BT = columns["agents/advantage"].reshape(2, 8, 2)[..., 0]
    assert torch.allclose(found_BT, expected_BT, atol=1e-5)


def test_an_agent_sees_its_own_observation_alone_and_as_much_of_it_as_there_is() -> None:
    agents = prepared(small_counting()).agents
    seen = {
        "observation": torch.randn(5, 2, 2),
        "message_history": torch.zeros(5, 0, 1, dtype=torch.int64),
        "round": torch.zeros(5, dtype=torch.int64),
    }
    rows = [agents.rows_of(index, seen)["observation"] for index in range(2)]
    assert torch.equal(rows[0], seen["observation"][:, 0])
    assert torch.equal(rows[1], seen["observation"][:, 1, :1])
    before = agents.policy_and_value(seen)
    changed = {**seen, "observation": seen["observation"].clone()}
    changed["observation"][:, 0] += 1.0
    after = agents.policy_and_value(changed)
    for one, other in zip(before, after, strict=True):
        assert not torch.equal(one[:, 0], other[:, 0])
        assert torch.equal(one[:, 1], other[:, 1])


def test_an_agent_with_fewer_actions_never_takes_one_that_it_has_not() -> None:
    trainer = prepared(small_counting())
    actions_BTA = trainer._roll_out(0)["agents", "action"][..., 1]
    assert set(actions_BTA[..., 0].unique().tolist()) == {0, 1}
    assert int(actions_BTA[..., 1].max()) > 1
    assert trainer.agents.policy(trainer.environment.begin(0).seen)[1].shape == (2, 2, 1, 4)
    # What it is paid for is the action as the env counts it, from 5 on.
    rewards = trainer._roll_out(0)["next", "agents", "reward"][..., 0, 0]
    assert set(rewards.unique().tolist()) == {5.0, 6.0}


def test_to_judge_each_env_plays_one_episode_and_then_all_is_over() -> None:
    trainer = prepared(small_counting(**{"evaluation.episodes": 3}))
    judged = trainer.scenario_instance.validation_environment
    source = generator(0, "test")
    rollouts = roll_out(
        trainer.agents, judged, judged.begin(0), lambda one: one.drawn(source), num_steps=100
    )
    # Three steps of each were played; the rest is there for rollouts to be of one length, and masked.
    assert rollouts.batch_size == (3, 100)
    assert rollouts["mask"].sum(1).tolist() == [3, 3, 3]
    assert not rollouts["mask"][:, 3:].any()
    assert not rollouts["next", "agents", "reward"][:, 3:].any()
    rewards_BTA = rollouts["next", "agents", "reward"][..., 0]
    found = judged.statistics(rollouts)
    assert found["episodes"].tolist() == [3.0, 1.0]
    assert found["one/return"].tolist() == [float(rewards_BTA[..., 0].sum()), 3.0]
    assert found["return"][0] == pytest.approx(float(rewards_BTA.sum()) / 2)


def test_returns_are_of_every_episode_that_was_begun() -> None:
    trainer = prepared(small_counting())
    rollouts = trainer._roll_out(0)
    # Eight steps of each of two envs are two episodes of three, and one of two.
    assert trainer.environment.statistics(rollouts)["episodes"].tolist() == [6.0, 1.0]
    short = prepared(
        small_counting(**{"rl.steps_per_env_per_iteration": 6, "rl.minibatch_size": 6})
    )
    assert short.environment.statistics(short._roll_out(0))["episodes"].tolist() == [4.0, 1.0]


def test_tests_of_several_iterations_are_put_together_however_long_their_episodes_were() -> None:
    scenario = {
        "kind": "pettingzoo",
        "env": {"kind": "gymnasium", "id": "CartPole-v1"},
        "max_episode_steps": 60,
    }
    trainer = prepared(small_env(scenario=scenario, agents={"agent": parts(VECTOR)}))
    found = trainer.evaluation.test(None, 3)
    # A pole falls the later the more is gained: a point a step.
    assert found["return"] == pytest.approx(found["rounds"])
    assert found["episodes"] == 6.0
    assert 8.0 <= found["return"] <= 60.0
