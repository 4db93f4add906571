"""What each key does that only one agent has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.core.errors import ConfigError
from tests.keys.runs import STEADY, differ, run, tiny
from tests.keys.table import changes
from tests.keys.test_rl import ONE_UPDATE

# DQN


@changes("dqn", "dueling")
def test_a_dueling_network_learns_the_value_of_a_state_apart(kind: str) -> None:
    dueling, plain = run(kind, dueling=True), run(kind, dueling=False)
    # One row of weights and a bias more, in the network and in its target.
    assert len(dueling.weights) - len(plain.weights) == 2 * (8 + 1)
    network, obs = dueling.agent.learner.module, torch.randn(5, 4)
    # What the actions add has a mean of zero, so that the mean is the value of the state.
    assert torch.allclose(network(obs).mean(1), network.value(network.body(obs))[:, 0], atol=1e-5)
    assert plain.agent.learner.module.value is None


@changes("dqn", "huber")
def test_from_the_huber_size_on_an_error_counts_in_proportion(kind: str) -> None:
    squared = run(kind, huber=None, **ONE_UPDATE[kind]).curve("train/loss")[0]
    # Errors are below a thousand, so that size changes nothing; beyond a tiny one all are in proportion.
    assert run(kind, huber=1000.0, **ONE_UPDATE[kind]).curve("train/loss")[0] == pytest.approx(
        squared
    )
    tenth, twentieth = (
        run(kind, huber=size, **ONE_UPDATE[kind]).curve("train/loss")[0] for size in (0.001, 0.0005)
    )
    assert tenth == pytest.approx(2 * twentieth, rel=0.01)
    assert tenth < squared


# IQN


@changes("iqn", "quantiles", "target_quantiles")
def test_so_many_quantiles_are_compared_with_so_many(kind: str) -> None:
    for own, theirs in ((8, 8), (3, 8), (8, 5)):
        outcome = run(kind, quantiles=own, target_quantiles=theirs)
        assert outcome.agent._drawn.shape == (8, own + theirs)
        if (own, theirs) != (8, 8):
            assert differ(outcome, run(kind))


@changes("iqn", "acting_quantiles")
def test_the_mean_of_an_action_is_taken_over_so_many_quantiles(kind: str) -> None:
    two = run(kind, acting_quantiles=2)
    assert two.agent._middles_Q.tolist() == [0.25, 0.75]
    assert run(kind, acting_quantiles=1).agent._middles_Q.tolist() == [0.5]
    # Here no action was chosen otherwise, so the same weights have other means.
    obs = two.trainer.obs
    assert torch.equal(two.weights, run(kind).weights)
    assert not np.allclose(two.agent.values(obs), run(kind).agent.values(obs), atol=1e-6)


@changes("iqn", "cosines")
def test_so_many_cosines_describe_a_quantile(kind: str) -> None:
    for count in (4, 9):
        assert run(kind, cosines=count).agent.learner.module.embed.in_features == count


@changes("iqn", "kappa")
def test_from_kappa_on_an_error_counts_in_proportion(kind: str) -> None:
    tiny_one, half = (
        run(kind, kappa=size, **ONE_UPDATE[kind]).curve("train/loss")[0] for size in (1e-4, 5e-5)
    )
    # Beyond kappa the loss is |error| - kappa / 2, so that a tiny one makes it the same as a tinier.
    assert tiny_one == pytest.approx(half, rel=0.01)
    assert run(kind, kappa=100.0, **ONE_UPDATE[kind]).curve("train/loss")[0] != pytest.approx(
        half, rel=0.1
    )


# SAC


@changes("sac", "temperature.initial")
def test_the_temperature_begins_there(kind: str) -> None:
    for initial in (0.5, 2.0):
        outcome = run(kind, **{"temperature.initial": initial}, **ONE_UPDATE[kind])
        assert outcome.curve("train/ent_coef")[0] == pytest.approx(initial)


@changes("sac", "temperature.learned")
def test_the_temperature_moves_only_if_it_is_learned(kind: str) -> None:
    still = run(kind, **{"temperature.learned": False})
    assert torch.equal(still.moments[0]["temperature"], still.moments[-1]["temperature"])
    moved = run(kind)
    assert not torch.equal(moved.moments[0]["temperature"], moved.moments[-1]["temperature"])
    assert len(set(still.curve("train/ent_coef"))) == 1


@changes("sac", "temperature.target_entropy")
def test_the_temperature_moves_towards_the_entropy_aimed_at(kind: str) -> None:
    high = run(kind, **{"temperature.target_entropy": 50.0})
    low = run(kind, **{"temperature.target_entropy": -50.0})
    assert float(high.moments[-1]["temperature"]) > 0 > float(low.moments[-1]["temperature"])
    # Null is minus the number of an action's numbers, and Pendulum's action is one number.
    one = run(kind, **{"temperature.target_entropy": -1.0})
    assert torch.equal(one.weights, run(kind).weights)


# PPO: a row is the observation (4), the action, its log-probability, advantage, return and value


def columns(outcome: Any) -> dict[str, torch.Tensor]:
    """Return advantages, returns and values of the first rollout."""
    per_rollout = outcome.config.num_minibatches
    rows = torch.cat([batch.rows for batch in outcome.batches[:per_rollout]])
    return {"advantages": rows[:, 6], "returns": rows[:, 7], "values": rows[:, 8]}


@changes("ppo", "max_env_steps")
def test_the_run_ends_with_the_rollout_that_reaches_the_env_steps(kind: str) -> None:
    assert run(kind).counters["env_steps"] == 48
    assert run(kind, max_env_steps=49).counters["env_steps"] == 64


@changes("ppo", "log_every_epochs", "evaluate_every_epochs", "keep_every_epochs")
def test_records_evaluations_and_weights_come_every_so_many_rollouts(kind: str) -> None:
    never = {
        "log_every_epochs": 0,
        "evaluate_every_epochs": 0,
        "keep_every_epochs": 0,
    }
    assert len(run(kind, **{**never, "log_every_epochs": 1}).records) == 3
    assert len(run(kind, **{**never, "log_every_epochs": 2}).records) == 2
    assert len(run(kind, **{**never, "evaluate_every_epochs": 1}).curve("eval/return_mean")) == 2
    assert len(run(kind, **{**never, "evaluate_every_epochs": 2}).curve("eval/return_mean")) == 1
    assert list(run(kind, **{**never, "keep_every_epochs": 2}).kept) == ["models/8"]
    assert list(run(kind, **{**never, "keep_every_epochs": 1}).kept) == [
        "models/4", "models/8", "models/12",
    ]  # fmt: skip


@changes("ppo", "max_opt_steps")
def test_the_updates_end_a_run_even_within_a_rollout(kind: str) -> None:
    counters = run(kind, max_opt_steps=6, evaluate_every_epochs=0).counters
    assert (counters["opt_steps"], counters["env_steps"]) == (6, 32)


@changes("ppo", "rollout_steps")
def test_each_env_takes_so_many_steps_before_the_policy_is_improved(kind: str) -> None:
    assert run(kind, rollout_steps=4, evaluate_every_epochs=0).counters["epoch"] == 6
    assert len(run(kind, rollout_steps=4, evaluate_every_epochs=0).batches[0].rows) == 4


@changes("ppo", "num_epochs", "minibatch_size")
def test_updates_go_through_a_rollout_so_often_in_so_many_pieces(kind: str) -> None:
    assert run(kind).counters["opt_steps"] == 3 * 2 * 2
    assert run(kind, num_epochs=3).counters["opt_steps"] == 3 * 3 * 2
    four = run(kind, minibatch_size=4)
    assert four.counters["opt_steps"] == 3 * 2 * 4
    assert {len(batch.rows) for batch in four.batches} == {4}
    seen = torch.cat([batch.indices for batch in four.batches[:4]])
    assert sorted(seen.tolist()) == list(range(16))


@changes("ppo", "shared_body")
def test_policy_and_value_share_one_body_or_have_their_own(kind: str) -> None:
    own, shared = run(kind, shared_body=False), run(kind, shared_body=True)
    assert len(own.weights) - len(shared.weights) == 4 * 8 + 8
    # The value's loss moves the body of the policy where it is the same.
    assert shared.agent.learner.module.value_body is None


@changes("ppo", "gae_lambda")
def test_advantages_look_as_far_ahead_as_lambda_says(kind: str) -> None:
    near, far = columns(run(kind, gae_lambda=0.0)), columns(run(kind, gae_lambda=1.0))
    assert torch.equal(near["values"].sort().values, far["values"].sort().values)
    # Every reward of CartPole is 1 and values begin near 0: who looks further sees more.
    assert near["returns"].mean() < 2 < far["returns"].mean()


KL = {"policy_loss": "kl", "clip": None, "kl": {"beta": 1.0, "target": None}}


@changes("ppo", "policy_loss", "clip", "kl")
def test_an_update_is_held_back_by_clipping_or_by_a_price(kind: str) -> None:
    priced, clipped = run(kind, **KL), run(kind)
    assert differ(priced, clipped)
    assert priced.curve("train/kl_beta")
    assert clipped.curve("train/clip_fraction")
    for wrong in ({"policy_loss": "kl"}, {"kl": KL["kl"]}, {"clip": None}):
        with pytest.raises(ConfigError, match=r"'policy_loss' is (kl|clip)"):
            tiny(kind, **{"clip.schedule": STEADY, **wrong})


@changes("ppo", "kl.beta")
def test_the_price_on_kl_divergence_begins_there_and_holds_the_policy_back(kind: str) -> None:
    fast = {"optimizer.learning_rate": 0.05, "num_epochs": 4}
    found = []
    for beta in (0.01, 100.0):
        outcome = run(kind, **{**KL, "kl": {"beta": beta, "target": None}}, **fast)
        assert outcome.curve("train/kl_beta") == pytest.approx([beta] * 3)
        found.append(outcome.curve("train/approx_kl")[0])
    assert found[0] > found[1]


@changes("ppo", "kl.target")
def test_the_price_rises_above_the_target_and_falls_below_it(kind: str) -> None:
    fast = {"optimizer.learning_rate": 0.05, "num_epochs": 4}
    for target, factor in ((1e-9, 2.0), (1e9, 0.5)):
        outcome = run(kind, **{**KL, "kl": {"beta": 1.0, "target": target}}, **fast)
        prices = outcome.curve("train/kl_beta")
        assert prices == pytest.approx([1.0, factor, factor**2])


@changes("ppo", "target_kl")
def test_the_passes_over_a_rollout_end_where_the_policy_has_gone_too_far(kind: str) -> None:
    fast = {"optimizer.learning_rate": 0.05}
    # The first update finds no divergence, the second one more than so small a target.
    assert run(kind, target_kl=1e-9, **fast).counters["opt_steps"] == 3 * 2
    assert run(kind, target_kl=1e9, **fast).counters["opt_steps"] == 3 * 4


@changes("ppo", "clip.initial")
def test_a_ratio_may_go_so_far_from_one(kind: str) -> None:
    fast = {"optimizer.learning_rate": 0.05, "num_epochs": 4}
    tight, loose = (
        run(kind, **fast, **{"clip.initial": 0.001}),
        run(kind, **fast, **{"clip.initial": 100.0}),
    )
    assert tight.curve("train/clip_fraction")[0] > 0.5
    assert set(loose.curve("train/clip_fraction")) == {0.0}
    # Held so tightly, the policy stays nearer to where it was.
    assert tight.curve("train/approx_kl")[0] < loose.curve("train/approx_kl")[0]


@changes("ppo", "clip.schedule")
def test_the_clip_follows_its_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 5}
    fast = {"optimizer.learning_rate": 0.05, "num_epochs": 4, "clip.initial": 50.0}
    closing = run(kind, **fast, **{"clip.schedule": falling}).curve("train/clip_fraction")
    assert closing[0] < 0.8 < closing[-1]
    assert set(run(kind, **fast).curve("train/clip_fraction")) == {0.0}


@changes("ppo", "value_clip")
def test_a_value_may_move_so_far(kind: str) -> None:
    fast = {"optimizer.learning_rate": 0.05, "num_epochs": 8, "minibatches": 1}
    tight, free = run(kind, value_clip=0.01, **fast), run(kind, value_clip=None, **fast)
    assert differ(tight, free)
    assert torch.allclose(run(kind, value_clip=100.0, **fast).weights, free.weights, atol=1e-3)
    # The worse of the two losses counts, so that holding values back never lowers it.
    assert tight.curve("train/value_loss")[0] > free.curve("train/value_loss")[0]


@changes("ppo", "value_coef")
def test_the_loss_of_the_value_counts_so_much(kind: str) -> None:
    ignored, counted = run(kind, value_coef=0.0), run(kind, value_coef=0.5)

    def moved(outcome: Any) -> bool:
        names = outcome.agent.learner.flat.names
        first, last = (
            outcome.agent.learner.flat.by_name([moment["network"]])
            for moment in (outcome.moments[0], outcome.moments[-1])
        )
        return any(not torch.equal(first[n], last[n]) for n in names if n.startswith("value"))

    assert not moved(ignored)
    assert moved(counted)


@changes("ppo", "entropy_coef")
def test_entropy_is_worth_so_much(kind: str) -> None:
    longer = {"optimizer.learning_rate": 0.03, "num_epochs": 6}
    dear, free = (
        run(kind, entropy_coef=c, **longer).curve("train/entropy_loss") for c in (10.0, 0.0)
    )
    # The loss is minus the entropy, which for two actions is 0.693 at most.
    assert dear[-1] < free[-1]
    assert dear[-1] == pytest.approx(-0.693, abs=0.01)


@changes("ppo", "normalise_advantage")
def test_the_advantages_of_a_minibatch_have_mean_0_where_they_are_normalised(kind: str) -> None:
    one = {"num_epochs": 1, "minibatches": 1}
    # Before any update every ratio is 1, so the loss is minus the mean advantage.
    normal, raw = (run(kind, normalise_advantage=n, **one) for n in (True, False))
    assert normal.curve("train/policy_gradient_loss")[0] == pytest.approx(0.0, abs=1e-5)
    mean = float(columns(raw)["advantages"].mean())
    assert raw.curve("train/policy_gradient_loss")[0] == pytest.approx(-mean, rel=1e-4)
