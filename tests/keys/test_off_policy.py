"""What each key does that only agents with a replay buffer have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.data.replay.prioritised import PrioritisedReplay
from ludus.rl.sampling.sampler import Episodes
from tests.keys.runs import EPOCHS, differ, rows_of, run, tiny
from tests.keys.table import OFF_POLICY, VALUES, changes
from tests.keys.test_rl import prepared
from tests.rl.small import PRIORITISED

STEADY = {"kind": "constant", "warmup_steps": 0}
PER = {**PRIORITISED, "beta_schedule": STEADY}


def in_epochs(kind: str, **changed: Any) -> Any:
    return run(kind, counted_in="epochs", epochs={**EPOCHS, **changed})


# In steps or in epochs


@changes(OFF_POLICY, "counted_in", "steps", "epochs")
def test_the_run_follows_the_schedule_that_is_named(kind: str) -> None:
    assert run(kind).counters["epoch"] == 0
    assert in_epochs(kind).counters["epoch"] == 5
    with pytest.raises(ConfigError, match="'counted_in' is steps, but the section 'steps' is null"):
        tiny(kind).replace(steps=None)
    with pytest.raises(ConfigError, match="'epochs' is filled in, but 'counted_in' is steps"):
        tiny(kind).replace(epochs=EPOCHS)


@changes(OFF_POLICY, "steps.update_every_env_steps")
def test_so_many_env_steps_lie_between_two_updates(kind: str) -> None:
    for interval in (2, 6):
        counters = run(kind, **{"steps.update_every_env_steps": interval}).counters
        # The first update comes when learning starts, at twelve env steps.
        assert counters["env_steps"] == 12 + interval * 11


@changes(OFF_POLICY, "steps.log_every_opt_steps")
def test_a_record_is_written_after_so_many_updates(kind: str) -> None:
    unevaluated = {"steps.evaluate_every_opt_steps": 0}
    assert run(kind, **{"steps.log_every_opt_steps": 4}, **unevaluated).at("train/loss") == [
        4,
        8,
        12,
    ]
    assert run(kind, **{"steps.log_every_opt_steps": 5}, **unevaluated).at("train/loss") == [
        5,
        10,
        12,
    ]


@changes(OFF_POLICY, "steps.evaluate_every_opt_steps")
def test_an_evaluation_comes_after_so_many_updates(kind: str) -> None:
    assert run(kind, **{"steps.evaluate_every_opt_steps": 4}).at("eval/return_mean") == [4, 8, 12]
    assert run(kind, **{"steps.evaluate_every_opt_steps": 0}).at("eval/return_mean") == []


@changes(OFF_POLICY, "steps.keep_every_opt_steps")
def test_weights_are_kept_after_so_many_updates(kind: str) -> None:
    kept = [
        name for name in run(kind, **{"steps.keep_every_opt_steps": 5}).kept if "best" not in name
    ]
    assert kept == ["models/5", "models/10"]
    assert [name for name in run(kind).kept if "best" not in name] == []


@changes(OFF_POLICY, "steps.log_agent_info_every_opt_steps")
def test_the_size_of_the_weights_is_recorded_after_so_many_updates(kind: str) -> None:
    outcome = run(kind, **{"steps.log_agent_info_every_opt_steps": 5})
    names = {name for record in outcome.records for name in record.scalars if "_norm" in name}
    described = sorted(name for name in names if name.startswith("agent/"))
    assert described == sorted(outcome.agent.describe())
    assert outcome.at(described[0]) == [5, 10]
    assert run(kind).at(described[0]) == []


@changes(OFF_POLICY, "steps.log_compute_cost_every_opt_steps")
def test_what_acting_and_learning_cost_is_written_after_so_many_updates(kind: str) -> None:
    def told(outcome: Any) -> list[int]:
        records = [record for record in outcome.records if "train_step_ms" in record.timing]
        return [record.counters["opt_steps"] for record in records]

    assert told(run(kind, **{"steps.log_compute_cost_every_opt_steps": 5})) == [5, 10]
    assert told(run(kind)) == []


@changes(OFF_POLICY, "steps.max_opt_steps")
def test_the_run_has_so_many_updates(kind: str) -> None:
    assert run(kind).counters["opt_steps"] == 12
    assert run(kind, **{"steps.max_opt_steps": 7}).counters["opt_steps"] == 7


@changes(OFF_POLICY, "epochs.max_env_steps")
def test_the_run_ends_with_the_epoch_that_reaches_the_env_steps(kind: str) -> None:
    assert in_epochs(kind).counters["env_steps"] == 40
    assert in_epochs(kind, max_env_steps=41).counters["env_steps"] == 48


@changes(OFF_POLICY, "epochs.steps_per_epoch")
def test_each_env_takes_so_many_steps_in_an_epoch(kind: str) -> None:
    assert in_epochs(kind, steps_per_epoch=2).counters["epoch"] == 10
    assert in_epochs(kind, steps_per_epoch=5).counters["epoch"] == 4


@changes(OFF_POLICY, "epochs.updates_per_env_step")
def test_so_many_updates_are_owed_for_each_env_step(kind: str) -> None:
    assert in_epochs(kind, updates_per_env_step=0.25).counters["opt_steps"] == 10
    assert in_epochs(kind, updates_per_env_step=0.5).counters["opt_steps"] == 20


@changes(OFF_POLICY, "epochs.max_opt_steps")
def test_the_updates_end_a_run_in_epochs_even_within_one(kind: str) -> None:
    outcome = in_epochs(kind, max_opt_steps=9, evaluate_every_epochs=0)
    assert (outcome.counters["opt_steps"], outcome.counters["env_steps"]) == (9, 24)


@changes(OFF_POLICY, "epochs.log_every_epochs")
def test_a_record_is_written_every_so_many_epochs(kind: str) -> None:
    # Nothing is learned in the first epoch, which ends before learning starts.
    assert len(in_epochs(kind, evaluate_every_epochs=0).curve("train/learning_rate")) == 5
    outcome = in_epochs(kind, evaluate_every_epochs=0, log_every_epochs=2)
    assert [record.counters["env_steps"] for record in outcome.records] == [16, 32, 40]


@changes(OFF_POLICY, "epochs.evaluate_every_epochs")
def test_an_evaluation_comes_every_so_many_epochs(kind: str) -> None:
    assert len(in_epochs(kind, evaluate_every_epochs=1).curve("eval/return_mean")) == 4
    assert len(in_epochs(kind, evaluate_every_epochs=2).curve("eval/return_mean")) == 2
    assert in_epochs(kind, evaluate_every_epochs=0).curve("eval/return_mean") == []


@changes(OFF_POLICY, "epochs.keep_every_epochs")
def test_weights_are_kept_every_so_many_epochs(kind: str) -> None:
    kept = [name for name in in_epochs(kind, keep_every_epochs=2).kept if "best" not in name]
    assert kept == ["models/8", "models/16"]
    assert [name for name in in_epochs(kind).kept if "best" not in name] == []


# The buffer


@changes(OFF_POLICY, "replay.capacity")
def test_so_many_transitions_are_kept(kind: str) -> None:
    assert run(kind, **{"replay.capacity": 20}).trainer.replay_buffer.size == 20
    assert run(kind).trainer.replay_buffer.size == 34


@changes(OFF_POLICY, "replay.on_device")
def test_transitions_are_kept_on_the_device_that_computes_or_in_main_memory(kind: str) -> None:
    for on_device, where in ((True, "meta"), (False, "cpu")):
        trainer = prepared(kind, **{"replay.on_device": on_device})
        # A device that holds no numbers stands for one that this machine may lack.
        trainer.device = torch.device("meta")
        trainer._prepare_data(Episodes(2, 10))
        assert trainer.replay_buffer.device.type == where


@changes(OFF_POLICY, "replay.prioritised")
def test_draws_are_by_priority_or_uniform(kind: str) -> None:
    by_priority = run(kind, **{"replay.prioritised": PER})
    assert isinstance(by_priority.trainer.replay_buffer, PrioritisedReplay)
    assert by_priority.batches[0].weights is not None
    assert run(kind).batches[0].weights is None
    assert differ(by_priority, run(kind))


def priorities(kind: str, **changed: Any) -> Any:
    """Return the priorities of a run's transitions that were drawn, and so have errors of their own."""
    outcome = run(kind, **{"replay.prioritised": {**PER, **changed}})
    drawn = np.unique(np.concatenate([batch.indices for batch in outcome.batches]))
    return outcome.trainer.replay_buffer._tree.leaves[drawn]


@changes(OFF_POLICY, "replay.prioritised.alpha")
def test_errors_decide_the_draws_the_more_the_greater_alpha(kind: str) -> None:
    uniform, proportional = priorities(kind, alpha=0.0), priorities(kind, alpha=1.0)
    assert np.all(uniform == 1.0)
    assert proportional.std() > 0.01


@changes(OFF_POLICY, "replay.prioritised.eps")
def test_eps_is_added_to_every_error(kind: str) -> None:
    assert priorities(kind, alpha=1.0, eps=1000.0).min() >= 1000.0
    assert priorities(kind, alpha=1.0).max() < 1000.0


def weights(kind: str, **changed: Any) -> list[torch.Tensor]:
    outcome = run(kind, **{"replay.prioritised": {**PER, **changed}})
    return [batch.weights for batch in outcome.batches]


@changes(OFF_POLICY, "replay.prioritised.beta")
def test_weights_take_so_much_of_the_bias_back(kind: str) -> None:
    assert all(bool((one == 1).all()) for one in weights(kind, beta=0.0))
    half, whole = weights(kind, beta=0.5), weights(kind, beta=1.0)
    # The first draws whose errors differ: until then both runs have drawn alike.
    first = next(n for n, one in enumerate(whole) if not bool((one == 1).all()))
    assert torch.allclose(half[first] ** 2, whole[first], rtol=1e-4)


@changes(OFF_POLICY, "replay.prioritised.normalise")
def test_the_largest_weight_is_that_of_the_batch_or_of_all(kind: str) -> None:
    assert all(float(one.max()) == 1.0 for one in weights(kind, beta=1.0))
    of_all = weights(kind, beta=1.0, normalise="all")
    assert all(float(one.max()) <= 1.0 for one in of_all)
    assert any(float(one.max()) < 1.0 for one in of_all)


@changes(OFF_POLICY, "replay.prioritised.beta_schedule")
def test_beta_follows_its_schedule(kind: str) -> None:
    rising = {"kind": "linear", "warmup_steps": 0, "final": 1.0, "total_steps": 8}
    seen = weights(kind, beta=0.0, beta_schedule=rising)
    assert bool((seen[0] == 1).all())
    assert not bool((seen[-1] == 1).all())
    still = weights(kind, beta=0.0)
    assert bool((still[-1] == 1).all())


@changes(OFF_POLICY, "n_step")
def test_so_many_rewards_are_added_up(kind: str) -> None:
    gamma = tiny(kind).gamma
    for count in (1, 3):
        found = rows_of(run(kind, n_step=count)).discounts.numpy()
        assert np.isclose(found.max(), gamma if count == 1 else found.max())
        assert np.isclose(found[found > 0].min(), gamma**count)
    if kind != "sac":
        assert rows_of(run(kind, n_step=3)).rewards.max() == pytest.approx(1 + gamma + gamma**2)


@changes(OFF_POLICY, "batch_size")
def test_an_update_learns_from_so_many_transitions(kind: str) -> None:
    for size in (8, 5):
        assert {len(batch.rows) for batch in run(kind, batch_size=size).batches} == {size}


@changes(OFF_POLICY, "learning_starts")
def test_so_many_env_steps_come_before_the_first_update(kind: str) -> None:
    for start in (12, 20):
        outcome = run(kind, learning_starts=start)
        assert outcome.counters["env_steps"] == start + 22
    if kind != "sac":
        # Until then actions are drawn at random, however little is explored after.
        outcome = run(kind, **{"exploration.initial": 0.0})
        agent, obs = outcome.agent, outcome.trainer.obs[:1]
        assert len({int(agent.act(obs, None, 11)[0]) for _ in range(40)}) == 2
        assert len({int(agent.act(obs, None, 12)[0]) for _ in range(40)}) == 1
        return
    agent, obs = run(kind).agent, run(kind).trainer.obs[:1]
    early = np.array([agent.act(obs, None, 11)[0, 0] for _ in range(400)])
    late = np.array([agent.act(obs, None, 12)[0, 0] for _ in range(400)])
    # A uniform draw between -1 and 1 has a deviation of 0.577, and its middle is 0.
    assert early.std() == pytest.approx(0.577, abs=0.05)
    assert abs(early.std() - late.std()) + abs(early.mean() - late.mean()) > 0.02


# The target


@changes(OFF_POLICY, "target.sync_every_opt_steps")
def test_the_target_moves_after_so_many_updates(kind: str) -> None:
    for every in (3, 5):
        moments = run(kind, **{"target.sync_every_opt_steps": every}).moments
        moved = [
            n
            for n in range(1, 13)
            if not torch.equal(moments[n]["target"], moments[n - 1]["target"])
        ]
        assert moved == list(range(every, 13, every))


@changes(OFF_POLICY, "target.tau")
def test_the_target_goes_that_share_of_the_way(kind: str) -> None:
    learner = "critics" if kind == "sac" else "q"
    for share in (1.0, 0.25):
        moments = run(kind, **{"target.tau": share}).moments
        way = moments[3]["target"] - moments[0]["target"]
        whole = moments[3][learner] - moments[0]["target"]
        assert torch.allclose(way, share * whole, atol=1e-6)


# Exploration


def drawn(agents: str, num_env_steps: int, **changed: Any) -> tuple[set[int], int]:
    """Return the actions that are tried at this env step, and the best one."""
    outcome = run(agents, **{f"exploration.{key}": value for key, value in changed.items()})
    agent, obs = outcome.agent, outcome.trainer.obs[:1]
    tried = {int(agent.act(obs, None, num_env_steps)[0]) for _ in range(60)}
    return tried, int(agent.act_greedy(obs, None)[0])


@changes(VALUES, "exploration.initial")
def test_so_much_is_tried_other_than_the_best(kind: str) -> None:
    tried, best = drawn(kind, 30, initial=0.0)
    assert tried == {best}
    assert drawn(kind, 30, initial=1.0)[0] == {0, 1}


@changes(VALUES, "exploration.schedule")
def test_exploration_follows_its_schedule_by_env_steps(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 30}
    outcome = run(kind, **{"exploration.schedule": falling})
    steps = [record.counters["env_steps"] for record in outcome.records]
    expected = [max(0.0, 1 - step / 30) for step in steps]
    assert outcome.curve("rollout/exploration_rate") == pytest.approx(expected)
    assert drawn(kind, 15, schedule=falling)[0] == {0, 1}
    tried, best = drawn(kind, 30, schedule=falling)
    assert tried == {best}


@changes(VALUES, "exploration.kind")
def test_softmax_draws_by_value_and_epsilon_regardless_of_it(kind: str) -> None:
    hot, cold = (drawn(kind, 30, kind="softmax", initial=t) for t in (1000.0, 1e-6))
    assert hot[0] == {0, 1}
    assert cold[0] == {cold[1]}
    # A probability so small never is; a temperature so small is the best action.
    assert drawn(kind, 30, kind="epsilon", initial=1.0)[0] == {0, 1}
    assert differ(run(kind, **{"exploration.kind": "softmax"}), run(kind))


@changes(VALUES, "double")
def test_the_next_action_is_chosen_by_the_network_that_learns(kind: str) -> None:
    # With a target that is the network itself there is nothing to tell them apart.
    slow = {"target.sync_every_opt_steps": 12, "optimizer.learning_rate": 0.1}
    assert differ(run(kind, double=True, **slow), run(kind, double=False, **slow))
    same = {"target.sync_every_opt_steps": 1, "target.tau": 1.0}
    one, two = run(kind, double=True, **same), run(kind, double=False, **same)
    assert torch.allclose(one.weights, two.weights, atol=1e-5)
