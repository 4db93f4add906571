"""What each key of the arena's trainers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.core.errors import ConfigError
from ludus.nn.engines.tape import Taped
from tests.arena.sections import EVEN_RATES, NEVER, TINY, parts
from tests.arena.small import KL, MLP
from tests.keys.runs import SGD, Outcome, differ, run, tiny
from tests.keys.table import ARENA, ARENA_RL, changes

PPO = "vanilla_ppo"
PARTS = "arena_agent parts"
BOTH = "vanilla_ppo, solo_agent"
ONE_UPDATE: dict[str, Any] = {
    "max_iterations": 1, "rl.num_epochs": 1, "rl.minibatch_size": 16, "keep_every_iterations": 0,
    "log_every_iterations": 1, "evaluate_every_iterations": 0, "rl.num_test_iterations": 0,
}  # fmt: skip
ONE_BATCH: dict[str, Any] = {
    "max_iterations": 1, "solo_agent.batch_size": 32, "keep_every_iterations": 0,
    "log_every_iterations": 1, "evaluate_every_iterations": 0,
}  # fmt: skip


def once(kind: str, **changed: Any) -> Outcome:
    """Return a run of one update."""
    return run(kind, **(ONE_BATCH if kind == "solo_agent" else ONE_UPDATE), **changed)


def moved(outcome: Outcome) -> Tensor:
    """Return how far all weights moved in a run."""
    fresh = prepared(outcome.config)
    after, before = outcome.trainer.weights(), fresh.weights()
    return torch.cat([(after[name].float() - before[name].float()).flatten() for name in after])


def prepared(config: Any) -> Any:
    """Return a trainer that is built but does not run."""
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer


def changed_parts(outcome: Outcome, agent: str) -> set[str]:
    """Return the parts of an agent that a run moved."""
    fresh, after = prepared(outcome.config).weights(), outcome.trainer.weights()
    prefix = f"members.{agent}."
    return {
        name.removeprefix(prefix).split(".")[0]
        for name in after
        if name.startswith(prefix) and not torch.equal(after[name], fresh[name])
    }


def agents(**verifier: Any) -> dict[str, Any]:
    return {"verifier": parts(MLP, **verifier), "prover": parts(MLP)}


@changes(ARENA, "scenario", shown_by=BOTH)
def test_agents_speak_about_the_scenario_that_is_named(kind: str) -> None:
    wide = prepared(tiny(kind, scenario={**TINY, "num_bits": 6})).scenario_instance
    assert wide.train_dataset.data["bits"].shape == (32, 6)


@changes(ARENA, "agents", shown_by=BOTH)
def test_agents_are_those_that_are_described(kind: str) -> None:
    wide = agents(policy_head={"widths": [5]}, solo_head={"widths": [5]})
    trainer = prepared(tiny(kind, agents=wide))
    assert any(5 in weight.shape for weight in trainer.weights().values())


@changes(ARENA_RL, "protocol.kind", shown_by=PPO)
def test_episodes_follow_the_protocol_that_is_named(kind: str) -> None:
    assert type(prepared(tiny(kind)).scenario_instance.protocol_handler).__name__ == "Nip"
    alone = {
        "kind": "solo_verifier", "force_guess": None, "verifier_reward": 1.0,
        "verifier_incorrect_reward": -1.0, "verifier_terminated_reward": -1.0,
    }  # fmt: skip
    config = tiny(kind, protocol=alone, agents={"verifier": parts(MLP)})
    assert prepared(config).environment.num_steps == 1


@changes(ARENA, "max_iterations", shown_by=BOTH)
def test_a_run_has_so_many_iterations(kind: str) -> None:
    assert run(kind).counters["iteration"] == 3
    assert run(kind, max_iterations=2).counters["iteration"] == 2


@pytest.mark.covers("002-S2")
@changes(ARENA_RL, "rl.rollouts_per_iteration", shown_by=PPO)
def test_so_many_episodes_are_played_side_by_side(kind: str) -> None:
    assert run(kind).counters["env_steps"] == 3 * 8 * 2
    assert run(kind, **{"rl.rollouts_per_iteration": 12}).counters["env_steps"] == 3 * 12 * 2


@pytest.mark.covers("002-S2")
@changes(ARENA_RL, "rl.num_epochs", "rl.minibatch_size", shown_by=PPO)
def test_updates_go_so_often_through_pieces_of_this_size(kind: str) -> None:
    assert run(kind).counters["opt_steps"] == 3 * 2 * 2
    assert run(kind, **{"rl.num_epochs": 3}).counters["opt_steps"] == 3 * 3 * 2
    small = run(kind, **{"rl.minibatch_size": 4})
    assert small.counters["opt_steps"] == 3 * 2 * 4
    first, second = small.batches[:4], small.batches[4:8]
    assert all(len(batch["index"]) == 4 for batch in first)
    # Each epoch goes through all rows, in an order of its own.
    seeds = [torch.cat([batch["seed"] for batch in epoch]) for epoch in (first, second)]
    assert not torch.equal(*seeds)
    assert torch.equal(*(one.sort().values for one in seeds))


@pytest.mark.covers("002-S2")
@changes(ARENA_RL, "rl.gamma", shown_by=PPO)
def test_a_reward_one_step_later_is_worth_gamma(kind: str) -> None:
    # By all that follows: the target of the step before the last is gamma times the last reward.
    for gamma in (1.0, 0.5):
        trainer = prepared(tiny(kind, **{"rl.gamma": gamma, "rl.gae_lambda": 1.0}))
        rollouts = trainer._roll_out(0)
        gains = rollouts["next", "agents", "reward"].clone()
        trainer._estimated(rollouts)
        target = rollouts["agents", "value_target"]
        assert torch.allclose(target[:, 0], gains[:, 0] + gamma * gains[:, 1], atol=1e-5)


@changes(ARENA_RL, "rl.gae_lambda", shown_by=PPO)
def test_advantages_look_as_far_ahead_as_lambda_says(kind: str) -> None:
    trainer = prepared(tiny(kind, **{"rl.gamma": 1.0, "rl.gae_lambda": 0.0}))
    rollouts = trainer._roll_out(0)
    gains = rollouts["next", "agents", "reward"].clone()
    trainer._estimated(rollouts)
    one_step = rollouts["agents", "value_target"][:, 0]
    assert torch.allclose(one_step, gains[:, 0] + rollouts["agents", "value"][:, 1], atol=1e-5)


@changes(ARENA_RL, "rl.shared_body", shown_by=PPO)
def test_policy_and_value_look_with_one_body_or_with_one_each(kind: str) -> None:
    for is_shared in (True, False):
        verifier = prepared(tiny(kind, **{"rl.shared_body": is_shared})).agents.member("verifier")
        assert (verifier.value_body is None) == is_shared


@changes(ARENA_RL, "rl.loss_critic_type", shown_by=PPO)
def test_the_loss_of_values_is_as_far_as_its_type_says(kind: str) -> None:
    found = {}
    for name in ("smooth_l1", "l2", "l1"):
        found[name] = once(kind, **{"rl.loss_critic_type": name}).curve("train/loss_critic")[0]
    assert found["l2"] == pytest.approx(2 * found["smooth_l1"], rel=0.2)
    assert len({round(value, 5) for value in found.values()}) == 3


@changes(ARENA_RL, "rl.num_test_iterations", shown_by=PPO)
def test_agents_are_tested_on_so_many_iterations_of_episodes(kind: str) -> None:
    none = run(kind, **{"rl.num_test_iterations": 0})
    assert none.curve("test/accuracy") == []
    one, two = (run(kind, **{"rl.num_test_iterations": count}) for count in (1, 2))
    assert len(one.curve("test/accuracy")) == 1
    assert one.curve("test/verifier/reward_std") != two.curve("test/verifier/reward_std")


@changes(ARENA, "optimizer", shown_by=BOTH)
def test_weights_move_by_the_optimizer_that_is_named(kind: str) -> None:
    ways = [moved(once(kind, optimizer={**SGD, "learning_rate": rate})) for rate in (0.1, 0.01)]
    assert ways[0].abs().max() > 0
    assert torch.allclose(ways[0], 10 * ways[1], rtol=1e-2, atol=1e-5)


@pytest.mark.covers("002-S2")
@changes(ARENA, "learning_rate_schedule", shown_by=BOTH)
def test_the_learning_rate_follows_its_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 3}
    outcome = run(kind, learning_rate_schedule=falling, log_every_iterations=1)
    assert outcome.curve("train/learning_rate")[-1] == 0.0
    assert differ(outcome, run(kind))


@changes(ARENA, "max_grad_norm", shown_by=BOTH)
def test_a_step_along_a_long_gradient_is_shortened(kind: str) -> None:
    for limit in (1e-2, 1e-3):
        way = moved(once(kind, optimizer=SGD, max_grad_norm=limit))
        assert float(way.norm()) == pytest.approx(limit, rel=1e-2)


@changes(ARENA, "engine", shown_by=PPO)
def test_updates_are_executed_by_the_engine_that_is_named(kind: str) -> None:
    taped = run(kind)
    assert isinstance(taped.trainer.update.execute.update, Taped)
    eager = run(kind, engine="eager")
    assert eager.trainer.update.execute == eager.trainer.update.update
    assert not differ(taped, eager)
    assert prepared(tiny(kind, engine="auto")).config.engine == "tape"


@changes(ARENA, "log_every_iterations", shown_by=BOTH)
def test_a_record_is_written_every_so_many_iterations_and_after_an_evaluation(kind: str) -> None:
    never = {"evaluate_every_iterations": 0}
    for every, written in ((1, [1, 2, 3]), (2, [2, 3]), (0, [3])):
        outcome = run(kind, log_every_iterations=every, **never)
        found = [r.counters["iteration"] for r in outcome.records if "train/loss" in r.scalars]
        assert found == written
    evaluated = run(kind, log_every_iterations=0)
    found = [r.counters["iteration"] for r in evaluated.records if "train/loss" in r.scalars]
    assert found == [2, 3]


@changes(ARENA, "keep_every_iterations", shown_by=BOTH)
def test_weights_are_kept_every_so_many_iterations(kind: str) -> None:
    steps = run(kind).counters["opt_steps"] // 3
    for every, counts in ((1, [1, 2, 3]), (2, [2]), (0, [])):
        kept = run(kind, keep_every_iterations=every).kept
        wanted = {f"models/{steps * count}" for count in counts} | {"models/final"}
        assert {name for name in kept if "best" not in name} == wanted


@changes(ARENA, "evaluate_every_iterations", shown_by=BOTH)
def test_agents_are_judged_every_so_many_iterations_and_after_the_last(kind: str) -> None:
    for every, judged in ((1, [1, 2, 3]), (2, [2, 3]), (100, [3]), (0, [])):
        outcome = run(kind, evaluate_every_iterations=every)
        found = [r.counters["iteration"] for r in outcome.records
                 if any(name.startswith("eval/") for name in r.scalars)]  # fmt: skip
        assert found == judged


@changes(ARENA_RL, "evaluation.episodes", shown_by=PPO)
def test_an_evaluation_has_so_many_episodes(kind: str) -> None:
    one = run(kind, **{"evaluation.episodes": 1})
    assert set(one.curve("eval/verifier/reward_std")) == {0.0}
    assert max(run(kind).curve("eval/verifier/reward_std")) > 0


@changes(ARENA_RL, "evaluation.actions", shown_by=PPO)
def test_agents_are_judged_by_their_likeliest_actions_or_by_drawn_ones(kind: str) -> None:
    drawn = run(kind, **{"evaluation.actions": "sampled"})
    assert drawn.curve("eval/verifier/reward_std") != run(kind).curve("eval/verifier/reward_std")
    assert not differ(drawn, run(kind))


@changes(ARENA, "evaluation.patience", "evaluation.min_delta", shown_by=BOTH)
def test_the_run_ends_when_evaluations_are_no_better(kind: str) -> None:
    # Agents that hardly learn are never better than the first time.
    still: dict[str, Any] = {"optimizer.learning_rate": 1e-12, "evaluate_every_iterations": 1}
    ended = run(kind, **still, **{"evaluation.patience": 1})
    assert ended.counters["iteration"] == 2
    assert "has not improved" in ended.result.reason
    assert run(kind, **still).counters["iteration"] == 3
    delta = {"evaluation.patience": 1, "evaluation.min_delta": 2.0, "max_iterations": 3}
    assert run(kind, evaluate_every_iterations=1, **delta).counters["iteration"] == 2


@changes(ARENA, "evaluation.target", shown_by=BOTH)
def test_the_run_ends_when_an_evaluation_reaches_the_target(kind: str) -> None:
    every = {"evaluate_every_iterations": 1}
    assert run(kind, **every, **{"evaluation.target": 0.0}).counters["iteration"] == 1
    assert run(kind, **every, **{"evaluation.target": 2.0}).counters["iteration"] == 3


@changes(ARENA_RL, "analysers", shown_by=PPO)
def test_what_analysers_say_is_logged(kind: str) -> None:
    told = run(kind, analysers=[{"kind": "message_information"}])
    for phase in ("train", "eval", "test"):
        assert told.curve(f"{phase}/message_information/prover")
    assert not run(kind).curve("train/message_information/prover")


@changes(ARENA, "seed", shown_by=BOTH)
def test_the_seed_decides_the_run(kind: str) -> None:
    assert differ(run(kind, seed=1), run(kind))
    assert not differ(Outcome(tiny(kind)), run(kind))


@changes(f"{ARENA}, rerun_tests", "name", shown_by=BOTH)
def test_a_run_is_kept_under_its_name(kind: str, tmp_path: Path) -> None:
    trainer = ludus.build_trainer(tiny(kind, name="mine"))
    assert str(trainer.fit(root=str(tmp_path)).run_dir).endswith("mine")


@changes("solo_agent", "solo_agent.batch_size")
def test_an_update_learns_from_so_many_data(kind: str) -> None:
    assert run(kind).counters["opt_steps"] == 3 * 3
    assert run(kind, **{"solo_agent.batch_size": 5}).counters["opt_steps"] == 3 * 4


@changes("solo_agent", "solo_agent.max_message_rounds", "solo_agent.num_channels")
def test_bodies_are_built_for_the_rounds_and_channels_of_the_protocol_they_are_for(
    kind: str,
) -> None:
    name = "members.verifier.body.layers.0.weight"
    widths = [
        prepared(tiny(kind, **{f"solo_agent.{key}": count})).weights()[name].shape[1]
        for key, count in (("num_channels", 1), ("max_message_rounds", 3), ("num_channels", 2))
    ]
    # Four bits, four places for a symbol or silence in each round and channel, and the rounds.
    assert widths == [4 + 2 * 4 + 3, 4 + 3 * 4 + 4, 4 + 2 * 2 * 4 + 3]


@pytest.mark.covers("002-S2")
@changes(PPO, "ppo.loss")
def test_an_update_is_kept_near_by_clipping_or_by_a_penalty(kind: str) -> None:
    hard = {"optimizer.learning_rate": 0.03}
    clip = {"kind": "clip", "clip": 0.01}
    narrow = run(kind, **hard, **{"ppo.loss": clip})
    wide = run(kind, **hard, **{"ppo.loss": {**clip, "clip": 0.99}})
    assert max(narrow.curve("train/clip_fraction")) > 0.2
    assert max(wide.curve("train/clip_fraction")) < 0.05
    penalised = run(kind, **{"ppo.loss": KL})
    assert max(penalised.curve("train/kl")) > 0
    assert differ(penalised, run(kind))


@pytest.mark.parametrize("changed", [{}, {"increment": 3.0}, {"decrement": 0.25, "beta": 4.0}])
def test_the_penalty_is_steered_to_its_target(changed: dict[str, float]) -> None:
    """From its beginning, by these factors: 12 updates, each far from a target that is out of reach."""
    for target, factor in ((1e-6, "increment"), (1e6, "decrement")):
        params = {**KL, **changed, "target": target}
        found = float(run(PPO, **{"ppo.loss": params}).trainer.loss_module.beta)
        # The first update of each iteration has moved nothing yet, and steers nothing.
        assert found == pytest.approx(params["beta"] * params[factor] ** 9, rel=1e-4)


@pytest.mark.covers("002-S2")
@changes(PPO, "ppo.value_coef", "ppo.entropy_coef")
def test_the_loss_is_weighed_as_the_coefficients_say(kind: str) -> None:
    plain = once(kind, **{"ppo.value_coef": 1.0, "ppo.entropy_coef": 0.01})
    other = once(kind, **{"ppo.value_coef": 2.0, "ppo.entropy_coef": 0.03})
    for name, factor in (("loss_critic", 2.0), ("loss_entropy", 3.0), ("loss_objective", 1.0)):
        one, two = (outcome.curve(f"train/{name}")[0] for outcome in (plain, other))
        assert two == pytest.approx(factor * one, rel=1e-4, abs=1e-6)
    total = sum(other.curve(f"train/loss_{name}")[0] for name in ("critic", "entropy", "objective"))
    assert other.curve("train/loss")[0] == pytest.approx(total, rel=1e-5)


@changes(PPO, "ppo.normalise_advantage")
def test_advantages_are_brought_to_mean_zero_where_it_is_asked_for(kind: str) -> None:
    # At the first update every ratio is 1, so the loss of the policy is minus the mean advantage.
    on, off = (once(kind, **{"ppo.normalise_advantage": is_on}) for is_on in (True, False))
    assert on.curve("train/loss_objective")[0] == pytest.approx(0.0, abs=1e-5)
    assert abs(off.curve("train/loss_objective")[0]) > 1e-3


@changes(PPO, "ppo.value_clip")
def test_a_value_that_moved_far_has_no_gradient_towards_it(kind: str) -> None:
    free, held = run(kind), run(kind, **{"ppo.value_clip": 1e-3})
    assert differ(free, held)
    assert held.curve("train/loss_critic")[0] >= free.curve("train/loss_critic")[0]


@changes(PARTS, "kind", "body", "policy_head.widths", "value_head.widths", "solo_head.widths")
def test_an_agent_of_parts_has_the_parts_that_are_described(kind: str) -> None:
    own = {
        "policy_head": {"widths": [5]},
        "value_head": {"widths": [6]},
        "solo_head": {"widths": [7]},
    }
    body = {"kind": "mlp", "widths": [9]}
    verifier = prepared(
        tiny(PPO, agents={**agents(), "verifier": parts(body, **own)})
    ).agents.member("verifier")
    assert verifier.body.width == 9
    assert verifier.policy_head.decide[0].weight.shape == (5, 9)
    assert verifier.value_head.layers[0].weight.shape == (6, 9)
    alone = prepared(tiny("solo_agent", agents={**agents(), "verifier": parts(body, **own)}))
    assert alone.agents.member("verifier").solo_head.layers[0].weight.shape == (7, 9)


@pytest.mark.covers("002-S3")
@changes(PARTS, "update_schedule")
def test_an_agent_learns_in_the_iterations_of_its_schedule(kind: str) -> None:
    frozen = run(PPO, agents=agents(update_schedule=NEVER))
    assert changed_parts(frozen, "verifier") == set()
    assert changed_parts(frozen, "prover") == {"body", "policy_head", "value_head"}
    late = {"kind": "contiguous_periodic", "period": 3, "start": 2, "stop": 3}
    assert changed_parts(run(PPO, agents=agents(update_schedule=late)), "verifier")
    early = run(PPO, agents=agents(update_schedule=late), max_iterations=2)
    assert changed_parts(early, "verifier") == set()


@changes(PARTS, "shares_body_of")
def test_two_agents_may_look_with_one_body(kind: str) -> None:
    shared = {"verifier": parts(MLP), "prover": parts(MLP, shares_body_of="verifier")}
    both = run(PPO, agents=shared).trainer.agents
    assert both.member("prover").body is both.member("verifier").body


@changes(PARTS, *(f"learning_rate_factors.{part}" for part in EVEN_RATES))
def test_a_factor_slows_or_stops_its_part_alone(kind: str) -> None:
    for part in ("body", "policy_head", "value_head"):
        outcome = run(PPO, agents=agents(learning_rate_factors={**EVEN_RATES, part: 0.0}))
        assert changed_parts(outcome, "verifier") == {"body", "policy_head", "value_head"} - {part}
    still = agents(learning_rate_factors={**EVEN_RATES, "solo_head": 0.0})
    assert changed_parts(run("solo_agent", agents=still), "verifier") == {"body"}


def test_a_key_of_the_other_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'ppo.loss.clip' is not a key"):
        tiny(PPO, **{"ppo.loss": {**KL, "clip": 0.2}})
