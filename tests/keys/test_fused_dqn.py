"""What each key does of a host and an agent that learn by double DQN."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.games.dqn import role as role_module, trainer as fused_dqn
from ludus.games.players._table import ChooseLast, Random
from ludus.nn.engines.tape import Taped
from ludus.nn.optimizer import Adam, Sgd
from tests.games.dqn.small import Ran, prepared, small_dqn
from tests.keys.runs import SGD
from tests.keys.table import changes
from tests.rl.odd_networks import engine_of

KIND = "fused_dqn"
ROLES = ("host", "agent")
RANDOM = {"kind": "random"}


def both(*keys: str) -> list[str]:
    """Return the keys of host and agent."""
    return [f"{role}.{key}" for role in ROLES for key in keys]


def spied_updates(role: str, times: int = 1, **changed: Any) -> list[Any]:
    """Return the inputs of the first updates of a role."""
    learner = prepared(small_dqn(**changed)).learners[role]
    seen: list[Any] = []
    learner.execute = lambda *inputs: seen.append([given.clone() for given in inputs])
    for _ in range(times):
        learner.step()
    return seen


def spied_rollouts(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> list[Any]:
    """Return role, games, turns and exploration of everything that is collected in a run."""
    seen: list[Any] = []
    play = fused_dqn.play_turns

    def spied(game: Any, players: Any, role: str, state: Any, **options: Any) -> Any:
        seen.append((role, len(state["points"]), options["turns"], options["exploration_rate"]))
        return play(game, players, role, state, **options)

    monkeypatch.setattr(fused_dqn, "play_turns", spied)
    Ran(small_dqn(**changed))
    monkeypatch.setattr(fused_dqn, "play_turns", play)
    return seen


@changes(KIND, "game")
def test_the_game_that_is_named_is_played(kind: str) -> None:
    other = prepared(small_dqn(**{"game.dimension": 4}))
    assert other.host_net(torch.zeros(2, 24)).shape == (2, 11)
    assert other.agent_net(torch.zeros(2, 28)).shape == (2, 4)


@changes(KIND, "max_rounds", "name", "seed")
def test_a_run_has_so_many_rounds_and_follows_from_its_seed(kind: str) -> None:
    one, same, other = (
        Ran(small_dqn(name=name, seed=seed)) for name, seed in zip("aba", (3, 3, 4), strict=True)
    )
    weights = [
        torch.cat([t.flatten() for t in ran.trainer.weights().values()])
        for ran in (one, same, other)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.result.counters["round"] == 6
    assert Ran(small_dqn(max_rounds=4)).result.counters["round"] == 4


@pytest.mark.covers("001-S11")
@changes(KIND, "host", "agent", "opponent")
def test_a_role_that_is_null_is_played_by_the_opponent(kind: str) -> None:
    for role, other in (ROLES, ROLES[::-1]):
        ran = Ran(small_dqn(**{role: None, "opponent": RANDOM}))
        assert isinstance(ran.trainer.get_net(role), Random)
        assert ran.trainer.trained_roles == [other]
        assert ran.result.counters["opt_steps"] == 6
        with pytest.raises(ConfigError, match=f"the {role} is neither trained nor given"):
            small_dqn(**{role: None})
    with pytest.raises(ConfigError, match="host and agent are both trained"):
        small_dqn(opponent=RANDOM)


@pytest.mark.covers("001-S11")
@changes(KIND, *both("net_arch"))
def test_the_network_has_these_layers(kind: str) -> None:
    for role in ROLES:
        net = prepared(small_dqn(**{f"{role}.net_arch": [7, 5]})).get_net(role)
        assert [layer.out_features for layer in net if hasattr(layer, "out_features")][:2] == [7, 5]


@changes(KIND, *both("batch_size"))
def test_an_update_learns_from_so_many_experiences(kind: str) -> None:
    for role in ROLES:
        for size in (5, 11):
            ((obs, *_),) = spied_updates(role, **{f"{role}.batch_size": size})
            assert len(obs) == size


@pytest.mark.covers("001-S11")
@changes(KIND, *both("initial_rollout_size", "rollout_size", "max_rollout_step"))
def test_so_many_games_of_so_many_moves_are_played_at_first_and_each_time(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"initial_rollout_size": 9, "rollout_size": 3, "max_rollout_step": 2}
    changed = {f"agent.{key}": value for key, value in sizes.items()}
    seen = spied_rollouts(monkeypatch, **changed)
    assert [found[1:3] for found in seen if found[0] == "agent"] == [(9, 2), (3, 2), (3, 2), (3, 2)]
    assert [found[1:3] for found in seen if found[0] == "host"] == [(20, 4), (6, 4), (6, 4), (6, 4)]


@changes(KIND, *both("sparring"))
def test_a_scripted_player_is_met_in_so_large_a_share_of_the_games(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    act = ChooseLast.act

    def spied(self: Any, obs: Any, *more: Any) -> Any:
        asked.append(len(obs))
        return act(self, obs, *more)

    monkeypatch.setattr(ChooseLast, "act", spied)
    for role in ROLES:
        for share, met in ((0.25, 5), (1.0, 20)):
            asked.clear()
            sparring = {"player": {"kind": "choose_last"}, "share": share}
            prepared(small_dqn(**{f"{role}.sparring": [sparring]}))
            assert set(asked) == {met}
        asked.clear()
        prepared(small_dqn())
        assert not asked
        with pytest.raises(ConfigError, match=r"add up to 1\.25; they are 1 at most"):
            small_dqn(**{f"{role}.sparring": [sparring, {**sparring, "share": 0.25}]})


@changes(KIND, *both("collect_every_rounds", "sync_target_every_rounds"))
def test_a_role_collects_and_moves_its_target_every_so_many_rounds(kind: str) -> None:
    changed = {"host.collect_every_rounds": 3, "agent.sync_target_every_rounds": 2}
    ran = Ran(small_dqn(**changed))
    assert ran.rounds("collect", "host") == [2, 5]
    assert ran.rounds("collect", "agent") == [1, 3, 5]
    assert ran.rounds("sync_target", "host") == [3]
    assert ran.rounds("sync_target", "agent") == [2, 4]


@pytest.mark.covers("001-S12")
@changes(KIND, *both("tau"))
def test_the_target_moves_so_far_towards_the_network(kind: str) -> None:
    for role in ROLES:
        for tau in (0.25, 1.0):
            learner = prepared(small_dqn(**{f"{role}.tau": tau})).learners[role]
            learner.step()
            (before,), (now,) = learner.target.vectors, learner.learner.flat.vectors
            wanted = before + tau * (now.detach() - before)
            learner.sync_target()
            assert torch.allclose(learner.target.vectors[0], wanted, atol=1e-6)
            # The statistics of batch norm are taken over with the weights they belong to.
            held, theirs = (
                learner.target.module_state.tensors(),
                learner.learner.module_state.tensors(),
            )
            assert held["1.running_mean"].any()
            assert torch.equal(held["1.running_mean"], theirs["1.running_mean"])


@changes(KIND, *both("gamma"))
def test_a_reward_at_the_next_turn_is_worth_so_much(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    targets = role_module.td_targets

    def spied(rewards: Any, discounts: Any, *more: Any) -> Any:
        seen.append((rewards, discounts))
        return targets(rewards, discounts, *more)

    monkeypatch.setattr(role_module, "td_targets", spied)
    for role in ROLES:
        for gamma in (0.5, 1.0):
            seen.clear()
            prepared(small_dqn(engine="eager", **{f"{role}.gamma": gamma})).learners[role].step()
            ((rewards, discounts),) = seen
            # The end is where there is a reward.
            assert torch.equal(discounts, gamma * (rewards == 0).float())


@changes(KIND, *both("replay_capacity"))
def test_so_many_experiences_are_kept(kind: str) -> None:
    for role in ROLES:
        buffer = prepared(small_dqn(**{f"{role}.replay_capacity": 17})).get_replay_buffer(role)
        assert int(buffer.size) == buffer.capacity == 17
        assert int(buffer.total_pushed) > 17


@changes(KIND, *both("exploration.initial", "exploration.schedule"))
def test_exploration_moves_at_every_round_by_its_schedule(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 4}
    for role in ROLES:
        changed = {f"{role}.exploration.initial": 0.8, f"{role}.exploration.schedule": falling}
        seen = spied_rollouts(monkeypatch, **changed)
        rates = [found[3] for found in seen if found[0] == role]
        # The first games, then after two, four and six updates.
        assert rates == pytest.approx([0.8, 0.4, 0.0, 0.0])
    with pytest.raises(ConfigError, match="a share of moves is 1 at most"):
        small_dqn(**{"host.exploration.schedule": {**falling, "final": 2.0}})


@pytest.mark.covers("001-S11")
@changes(KIND, *both("optimizer", "learning_rate_schedule"))
def test_weights_move_by_the_optimizer_at_the_rate_of_the_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 4}
    for role in ROLES:
        rates = [
            float(inputs[-1][0])
            for inputs in spied_updates(role, 5, **{f"{role}.learning_rate_schedule": falling})
        ]
        assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025, 0.0])
        by_sgd = prepared(small_dqn(**{f"{role}.optimizer": SGD}))
        assert isinstance(by_sgd.learners[role].config.optimizer, Sgd)
        assert len(by_sgd.get_optimizer(role).moments[0]) == 1
        assert isinstance(prepared().learners[role].config.optimizer, Adam)


@changes(KIND, "huber")
def test_errors_beyond_this_count_in_proportion(kind: str) -> None:
    losses = {}
    for huber in (1e-3, 2e-3, None):
        learner = prepared(small_dqn(engine="eager", huber=huber)).learners["host"]
        learner.step()
        losses[huber] = float(learner.totals[0])
    # Nearly every error is beyond: the loss is the slope times the errors.
    assert losses[2e-3] == pytest.approx(2 * losses[1e-3], rel=0.05)
    assert losses[None] > 10 * losses[2e-3]


@changes(KIND, "max_grad_norm")
def test_a_longer_gradient_is_shortened(kind: str) -> None:
    moved = {}
    for limit in (None, 1e-3):
        plain = {"host.optimizer": SGD, "host.net_arch": [8], "max_grad_norm": limit}
        learner = prepared(small_dqn(**plain)).learners["host"]
        before = learner.learner.flat.vectors[0].detach().clone()
        learner.step()
        moved[limit] = float((learner.learner.flat.vectors[0].detach() - before).norm())
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-3)
    assert moved[None] > moved[1e-3]


@changes(KIND, "precision")
def test_networks_compute_in_this_type_and_weights_stay_float32(kind: str) -> None:
    for precision in ("float32", "bfloat16"):
        learner = prepared(small_dqn(precision=precision)).learners["agent"]
        assert str(learner.learner(torch.zeros(2, 21)).dtype) == f"torch.{precision}"
        assert learner.learner.flat.vectors[0].dtype == torch.float32
    products = {"float32": "highest", "tf32": "high", "bfloat16": "highest"}
    before = torch.get_float32_matmul_precision()
    for precision, product in products.items():
        seen = []
        learner = prepared(small_dqn(precision=precision, engine="eager")).learners["agent"]
        learner.net.register_forward_pre_hook(
            lambda *given, seen=seen: seen.append(torch.get_float32_matmul_precision())
        )
        learner.values(torch.zeros(2, 21))
        learner.step()
        assert len(seen) >= 3
        assert {*seen} == {product}
        assert torch.get_float32_matmul_precision() == before


@changes(KIND, "engine")
def test_the_engine_executes_the_updates(kind: str, compiled_calls: list[None]) -> None:
    taped = prepared(small_dqn(engine="tape")).learners["host"]
    taped.step()
    assert isinstance(engine_of(taped), Taped)
    eager = prepared(small_dqn(engine="eager")).learners["host"]
    assert eager.execute == eager.update
    Ran(small_dqn(engine="compiled", **{"host.net_arch": [8], "agent.net_arch": [8]}))
    assert len(compiled_calls) >= 12
    assert Ran(small_dqn(engine="auto")).trainer.config.engine == "tape"
    with pytest.raises(ConfigError, match="'engine' is graph, but"):
        prepared(small_dqn(engine="graph"))


@changes(KIND, "log_every_rounds")
def test_a_record_is_written_after_so_many_rounds(kind: str) -> None:
    quiet = {"evaluate_every_rounds": 0}
    assert Ran(small_dqn(log_every_rounds=3, **quiet)).at("host/loss") == [6, 12]
    assert Ran(small_dqn(log_every_rounds=0, **quiet)).at("host/loss") == [12]


@changes(KIND, "keep_every_rounds")
def test_weights_are_kept_after_so_many_rounds(kind: str) -> None:
    kept = Ran(small_dqn(keep_every_rounds=2)).kept
    assert [name for name in kept if "best" not in name] == ["models/2", "models/4", "models/6"]
    assert {name.split(".")[0] for name in kept["models/2"]} == {"host", "agent"}
    assert not [name for name in Ran(small_dqn(keep_every_rounds=0)).kept if "best" not in name]


@changes(KIND, "evaluate_every_rounds")
def test_an_evaluation_comes_after_so_many_rounds_and_at_the_end(kind: str) -> None:
    metric = "eval/host_rho"
    assert Ran(small_dqn(evaluate_every_rounds=4)).at(metric) == [8, 12]
    assert Ran(small_dqn(evaluate_every_rounds=3)).at(metric) == [6, 12]
    assert Ran(small_dqn(evaluate_every_rounds=0)).at(metric) == []


@changes(KIND, "evaluation.episodes", "evaluation.max_turns")
def test_an_evaluation_has_so_many_games_of_so_many_steps(kind: str) -> None:
    trainer = prepared(small_dqn(**{"evaluation.episodes": 9, "evaluation.max_turns": 2}))
    played = trainer.evaluation.play(trainer.players, "random_vs_agent")
    assert len(played.steps) == 9
    assert int(played.steps.max()) == 2


@changes(KIND, "evaluation.patience", "evaluation.min_delta")
def test_a_run_ends_when_no_role_has_got_better_for_so_long(kind: str) -> None:
    still = {
        "host.optimizer.learning_rate": 1e-30, "agent.optimizer.learning_rate": 1e-30,
        "evaluate_every_rounds": 1, "max_rounds": 30,
    }  # fmt: skip
    for patience in (1, 3):
        changed = {"evaluation.patience": patience, "evaluation.min_delta": 0.5}
        ran = Ran(small_dqn(**still, **changed))
        assert ran.result.counters["round"] == patience + 1
    assert Ran(small_dqn(**{**still, "max_rounds": 5})).result.counters["round"] == 5
    with pytest.raises(ConfigError, match="has no effect where 'patience' is null"):
        small_dqn(**{"evaluation.min_delta": 0.5})


@pytest.mark.covers("001-S12")
@changes(KIND, "log_time")
def test_the_time_of_each_stage_of_each_role_is_measured(kind: str) -> None:
    timed = Ran(small_dqn()).records[0].timing
    assert {"host_fit_ms", "agent_fit_ms", "host_collect_ms", "agent_collect_ms"} <= set(timed)
    assert not [name for name in Ran(small_dqn(log_time=False)).records[0].timing if "_ms" in name]


@pytest.mark.covers("001-S12")
@changes(KIND, "layerwise_logging")
def test_the_norm_of_every_layer_is_logged(kind: str) -> None:
    ran = Ran(small_dqn(layerwise_logging=True))
    weight = ran.trainer.host_net[0].weight
    assert ran.curve("layers/host/0.weight")[-1] == pytest.approx(float(weight.detach().norm()))
    gradients = ran.curve("layers/agent/0.weight/gradient")
    assert len(gradients) == len(ran.records)
    assert all(norm > 0 for norm in gradients)
    plain = Ran(small_dqn())
    assert not plain.curve("layers/host/0.weight")
    for name, value in plain.trainer.weights().items():
        assert torch.equal(value, ran.trainer.weights()[name]), "it only looks"


@changes(KIND, "settings.workers", "settings.checkpoint.every_epochs")
def test_settings_that_would_do_nothing_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"'settings\.workers' is 2, but the games are tensors"):
        small_dqn(**{"settings.workers": 2})
    with pytest.raises(ConfigError, match="counted in rounds has no epochs"):
        small_dqn(**{"settings.checkpoint.every_epochs": 1})
