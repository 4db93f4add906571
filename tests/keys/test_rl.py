"""What each key does that all agents have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.nn.engines.compiled import CompiledMethod
from ludus.nn.engines.tape import Taped
from tests.keys.runs import SGD, Outcome, differ, run, tiny
from tests.keys.table import RL, changes
from tests.rl.odd_networks import engine_of

NORMALISE = {"observations": True, "rewards": True, "clip": 10.0}
_ONE = {
    "steps.max_opt_steps": 1,
    "steps.evaluate_every_opt_steps": 0,
    "steps.log_every_opt_steps": 0,
}
ONE_UPDATE: dict[str, dict[str, Any]] = {
    "dqn": _ONE,
    "iqn": _ONE,
    "sac": _ONE,
    "ppo": {
        "max_opt_steps": 1,
        "evaluate_every_epochs": 0,
        "log_every_epochs": 0,
    },
}


def prepared(kind: str, **changed: Any) -> Any:
    """Return a trainer that is built but does not run."""
    trainer: Any = ludus.build_trainer(tiny(kind, **changed))
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer


class Scores:
    """An evaluator whose scores are given beforehand."""

    def __init__(self, *scores: float) -> None:
        self.scores = iter(scores)

    def evaluate(self, agent: Any) -> tuple[float, dict[str, float]]:
        score = next(self.scores)
        return score, {"eval/return_mean": score}


@changes(RL, "env")
def test_the_agent_learns_in_the_env_that_is_named(kind: str) -> None:
    other = "MountainCarContinuous-v0" if kind == "sac" else "Acrobot-v1"
    assert run(kind, **{"env.id": other}).trainer.obs.shape[1] == (2 if kind == "sac" else 6)
    assert run(kind).trainer.obs.shape[1] == (3 if kind == "sac" else 4)


@changes(RL, "num_envs")
def test_so_many_envs_are_stepped_side_by_side(kind: str) -> None:
    for count in (1, 4):
        changed = {"evaluate_every_epochs": 1} if kind == "ppo" else {}
        outcome = run(kind, num_envs=count, **changed)
        assert len(outcome.trainer.obs) == count
        assert outcome.counters["env_steps"] % count == 0


@changes(RL, "normalise", "normalise.observations")
def test_observations_are_shifted_and_scaled_where_it_is_asked_for(kind: str) -> None:
    outcome = run(kind, normalise=NORMALISE)
    seen = torch.from_numpy(np.tile(outcome.trainer.obs, (1, 1)))
    only_rewards = run(kind, normalise={**NORMALISE, "observations": False})
    assert not torch.equal(outcome.agent.normaliser.obs(seen), seen)
    assert torch.equal(only_rewards.agent.normaliser.obs(seen), seen)
    assert run(kind).agent.normaliser is None
    assert differ(outcome, only_rewards)


@changes(RL, "normalise.rewards")
def test_rewards_are_divided_by_the_deviation_of_the_return(kind: str) -> None:
    rewards = torch.tensor([1.0, -2.0])
    scaled = run(kind, normalise=NORMALISE).agent.normaliser.rewards(rewards)
    assert not torch.equal(scaled, rewards)
    assert torch.equal(scaled[1], -2 * scaled[0])
    plain = run(kind, normalise={**NORMALISE, "rewards": False}).agent.normaliser
    assert torch.equal(plain.rewards(rewards), rewards)


@changes(RL, "normalise.clip")
def test_normalised_numbers_are_cut_off_at_the_clip(kind: str) -> None:
    for clip in (0.5, 2.0):
        normaliser = run(kind, normalise={**NORMALISE, "clip": clip}).agent.normaliser
        far = torch.full((1, 3 if kind == "sac" else 4), 1e6)
        assert normaliser.obs(far).max() == clip
        assert normaliser.rewards(torch.tensor([1e9])) == clip


@changes(RL, "optimizer")
def test_weights_move_by_the_optimizer_that_is_named(kind: str) -> None:
    # One step of plain gradient descent at a tenth of the rate goes a tenth of the way.
    ways = []
    for rate in (0.01, 0.001):
        outcome = run(kind, optimizer={**SGD, "learning_rate": rate}, **ONE_UPDATE[kind])
        name = "critics" if kind == "sac" else next(iter(outcome.moments[0]))
        ways.append(outcome.moments[1][name] - outcome.moments[0][name])
    assert ways[0].abs().max() > 0
    assert torch.allclose(ways[0], 10 * ways[1], rtol=1e-2, atol=1e-5)
    # Adam's first step is as long for every weight that has a gradient.
    adam = run(kind, **ONE_UPDATE[kind])
    way = (adam.moments[1][name] - adam.moments[0][name]).abs()
    assert float(way.max()) == pytest.approx(0.01, rel=1e-2)
    assert float(way[way > 0].median()) == pytest.approx(0.01, rel=0.1)


@changes(RL, "learning_rate_schedule")
def test_the_learning_rate_follows_its_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 6}
    outcome = run(kind, learning_rate_schedule=falling)
    names = [name for name in outcome.moments[0] if name != "target"]
    for name in names:
        assert torch.equal(outcome.moments[6][name], outcome.moments[-1][name])
        assert not torch.equal(outcome.moments[4][name], outcome.moments[5][name])
        assert not torch.equal(run(kind).moments[6][name], run(kind).moments[-1][name])
    assert outcome.curve("train/learning_rate")[-1] == 0.0
    assert set(run(kind).curve("train/learning_rate")) == {0.01}


@changes(RL, "max_grad_norm")
def test_a_step_along_a_long_gradient_is_shortened(kind: str) -> None:
    for limit in (1e-3, 1e-4):
        outcome = run(kind, optimizer=SGD, max_grad_norm=limit, **ONE_UPDATE[kind])
        for name in outcome.moments[0]:
            if name not in ("target", "temperature"):
                way = outcome.moments[1][name] - outcome.moments[0][name]
                assert float(way.norm()) == pytest.approx(limit, rel=1e-2)
    free = run(kind, optimizer=SGD, max_grad_norm=None, **ONE_UPDATE[kind])
    name = "critics" if kind == "sac" else next(iter(free.moments[0]))
    assert float((free.moments[1][name] - free.moments[0][name]).norm()) > 2e-3


@changes(RL, "precision")
def test_networks_compute_in_the_precision_and_weights_stay_float32(kind: str) -> None:
    coarse, fine = run(kind, precision="bfloat16"), run(kind)
    assert differ(coarse, fine)
    assert coarse.weights.dtype == torch.float32
    for part in coarse.agent.learned().values():
        if hasattr(part, "autocast"):
            with part.autocast():
                assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16
            break


@changes(RL, "engine")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_updates_are_compiled_if_asked_or_if_the_run_is_long_enough(
    kind: str, compiled_calls: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(kind, engine="tape")
    # Without it the first update is recorded, and repeated from the second on.
    assert isinstance(engine_of(plain.agent), Taped)
    assert compiled_calls == []
    assert isinstance(engine_of(prepared(kind, engine="compiled").agent), CompiledMethod)
    if (
        kind == "dqn"
    ):  # that compiled updates of all kinds are the eager ones, the contract of engines says
        compiled = Outcome(tiny(kind, engine="compiled"))
        assert len(compiled_calls) == compiled.counters["opt_steps"]
        assert torch.allclose(compiled.weights, plain.weights, atol=1e-4)
    for threshold, is_compiled in ((13, False), (12, True)):
        monkeypatch.setattr(type(plain.agent), "worth_compiling", threshold)
        assert (
            isinstance(engine_of(prepared(kind, engine="auto").agent), CompiledMethod)
            == is_compiled
        )


@changes(RL, "gamma")
def test_a_reward_one_step_later_is_worth_gamma(kind: str) -> None:
    if kind == "ppo":
        # Without a future a return is the reward itself, and every reward of CartPole is 1.
        returns = run(kind, gamma=0.0).batches[0].rows[:, 7]
        assert torch.allclose(returns, torch.ones_like(returns))
        assert run(kind, gamma=0.9).batches[0].rows[:, 7].mean() > 1
        return
    for gamma in (0.5, 0.9):
        outcome = run(kind, gamma=gamma)
        rows = outcome.agent.layout.split(outcome.batches[0].rows)
        going_on = rows.discounts[rows.discounts > 0]
        assert torch.allclose(going_on, torch.full_like(going_on, gamma))


# Evaluation


def evaluated_every(kind: str, value: int) -> dict[str, int]:
    return {f"evaluate_every_{'epochs' if kind == 'ppo' else 'opt_steps'}": value}


@changes(RL, "evaluation.env")
def test_agents_are_judged_in_the_env_that_is_named(kind: str) -> None:
    section = tiny(kind).env.model_dump() | {"max_episode_steps": 3}
    assert run(kind, **{"evaluation.env": section}).curve("eval/length_mean")[0] == 3
    assert run(kind).curve("eval/length_mean")[0] > 3


@changes(RL, "evaluation.more_envs")
def test_other_envs_are_judged_besides(kind: str) -> None:
    section = tiny(kind).env.model_dump() | {"max_episode_steps": 2}
    outcome = run(kind, **{"evaluation.more_envs": {"brief": section}})
    assert set(outcome.curve("eval/brief/length_mean")) == {2.0}
    assert outcome.curve("eval/return_mean") == run(kind).curve("eval/return_mean")
    assert run(kind).curve("eval/brief/length_mean") == []


@changes(RL, "evaluation.episodes")
def test_an_evaluation_has_so_many_episodes(kind: str) -> None:
    evaluator = run(kind).trainer.evaluations.own
    assert len(evaluator.play(run(kind).agent, evaluator.task.section)) == 2
    four = run(kind, **{"evaluation.episodes": 4}).trainer.evaluations.own
    assert len(four.play(run(kind).agent, four.task.section)) == 4


@changes(RL, "evaluation.envs")
def test_so_many_envs_play_the_episodes_and_the_result_is_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.rl.evaluation import evaluator

    made: list[Any] = []
    make_env = evaluator.make_env
    monkeypatch.setattr(evaluator, "make_env", lambda s: made.append(s) or make_env(s))
    records = []
    for count in (1, 3):
        changed = {"evaluation.envs": count, "evaluation.episodes": 3}
        own = run(kind, **changed).trainer.evaluations.own
        made.clear()
        records.append(own.evaluate(run(kind).agent))
        assert len(made) == count
    # One row at a time or three, a product of matrices rounds otherwise.
    assert records[0][0] == pytest.approx(records[1][0], rel=1e-3)


@changes(RL, "evaluation.actions")
def test_actions_are_the_best_ones_or_drawn(kind: str) -> None:
    explores = {"exploration.initial": 1.0} if kind in ("dqn", "iqn") else {}
    greedy = run(kind, **explores)
    drawn = run(kind, **explores, **{"evaluation.actions": "sampled"})
    assert greedy.curve("eval/return_mean") != drawn.curve("eval/return_mean")
    assert torch.equal(greedy.weights, drawn.weights)


@changes(RL, "evaluation.max_episode_length")
def test_an_episode_of_an_evaluation_is_cut_at_the_greatest_length(kind: str) -> None:
    outcome = run(kind, **{"evaluation.max_episode_length": 4})
    assert max(outcome.curve("eval/length_mean")) <= 4
    assert outcome.curve("eval/cut_episodes")[0] == 2
    assert run(kind).curve("eval/cut_episodes") == []


@changes(RL, "evaluation.patience")
def test_a_run_stops_after_so_many_evaluations_that_were_no_better(kind: str) -> None:
    falling = [float(-n) for n in range(20)]
    for patience in (1, 2):
        changed = {"evaluation.patience": patience, **evaluated_every(kind, 1)}
        if kind == "ppo":
            changed["max_env_steps"] = 96
        outcome = Outcome(tiny(kind, **changed), Scores(*falling))
        assert outcome.result.status == "stopped"
        assert len(outcome.curve("eval/return_mean")) == 1 + patience
    whole = Outcome(tiny(kind, **evaluated_every(kind, 1)), Scores(*falling))
    assert whole.result.status == "finished"


@changes(RL, "evaluation.min_delta")
def test_a_gain_no_greater_than_the_delta_is_none(kind: str) -> None:
    rising = [float(n) for n in range(20)]
    changed = {"evaluation.patience": 1, **evaluated_every(kind, 1)}
    small, large = ({**changed, "evaluation.min_delta": delta} for delta in (0.5, 1.0))
    assert Outcome(tiny(kind, **small), Scores(*rising)).result.status == "finished"
    assert Outcome(tiny(kind, **large), Scores(*rising)).result.status == "stopped"


@changes(RL, "evaluation.target")
def test_a_run_stops_where_the_target_is_reached(kind: str) -> None:
    rising = [float(n) for n in range(20)]
    changed = evaluated_every(kind, 1)
    reached = Outcome(tiny(kind, **changed, **{"evaluation.target": 1.0}), Scores(*rising))
    assert reached.result.status == "stopped"
    assert "reached 1" in str(reached.result.reason)
    beyond = Outcome(tiny(kind, **changed, **{"evaluation.target": 99.0}), Scores(*rising))
    assert beyond.result.status == "finished"


@changes(RL, "return_window")
def test_the_mean_return_is_that_of_so_many_episodes(kind: str) -> None:
    # Pendulum's episodes end at the limit alone, CartPole's sooner.
    short = {"env.max_episode_steps": 5}
    one, all_of_them = run(kind, return_window=1, **short), run(kind, return_window=100, **short)
    assert torch.equal(one.weights, all_of_them.weights)
    latest = all_of_them.trainer.sampler.episodes.latest_returns
    assert len(latest) > 2
    assert one.curve("rollout/ep_rew_mean")[-1] == pytest.approx(latest[-1])
    assert all_of_them.curve("rollout/ep_rew_mean")[-1] == pytest.approx(np.mean(latest))


@changes(RL, "network")
def test_the_networks_have_the_body_that_is_described(kind: str) -> None:
    wide, narrow = run(kind, **{"network.widths": [16]}), run(kind, **{"network.widths": [4]})
    assert len(wide.weights) > len(run(kind).weights) > len(narrow.weights)


@changes(RL, "seed")
def test_another_seed_is_another_run_and_the_same_one_the_same(kind: str) -> None:
    assert differ(run(kind, seed=1), run(kind))
    assert torch.equal(Outcome(tiny(kind)).weights, run(kind).weights)


@changes(RL, "name")
def test_the_name_changes_nothing(kind: str) -> None:
    assert torch.equal(Outcome(tiny(kind, name="another")).weights, run(kind).weights)
