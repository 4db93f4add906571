"""PPO on device games: what it refuses, what it gives, and what its commands do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError, Diverged, HookError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.game import FusedGame, Step
from ludus.games.rules.cartpole import CartPole
from tests.command_line import in_process
from tests.games.ppo.small import small_ppo, small_self_play


class Body(nn.Module):
    """An actor-critic of a script."""

    is_repeatable = True

    def __init__(self, features: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.policy_layer = nn.Linear(features, outputs)
        self.value_layer = nn.Linear(features, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, None]:
        return self.policy_layer(obs), self.value_layer(obs).squeeze(1), None


def trained(config: Any, **options: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(runtime=InMemoryRuntime, **options)
    return trainer


@pytest.mark.covers("001-M7")
def test_the_trainer_is_public_and_takes_a_config() -> None:
    from ludus.games import PPOTrainer

    trainer = PPOTrainer(small_ppo())
    trainer.fit(runtime=InMemoryRuntime)
    assert isinstance(trainer.fused_game, FusedGame)
    assert trainer.run.counters["round"] == 6


# What is refused before work starts


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"minibatch_size": 7},
            "'minibatch_size' is 7, which does not divide the 30 moves .* try 6",
        ),
        ({"num_games": 0}, "'num_games' must be greater than or equal to 1"),
        ({"rounds_a_stage": 2}, "'fused' is false, so that a round has several stages"),
        ({"fused": True, "rounds_a_stage": 7}, "'rounds_a_stage' is 7, but 'max_rounds' is 6"),
        (
            {"fused": True, "rounds_a_stage": 3, "log_every_rounds": 3},
            "'evaluate_every_rounds' is 2, but a stage makes 3 rounds",
        ),
        ({"log_every_rounds": 7}, "'log_every_rounds' is 7, but 'max_rounds' is 6"),
        ({"keep_every_rounds": 7}, "'keep_every_rounds' is 7, but 'max_rounds' is 6"),
        ({"evaluation.min_delta": 1.0}, "has no effect where 'patience' is null"),
        ({"evaluate_every_rounds": 0, "evaluation.target": 9.0}, "there are no evaluations"),
        (
            {"evaluation.opponent": {"kind": "random"}},
            "CartPole has one role, so nobody is its opp",
        ),
        (
            {"past_players": {"size": 1, "keep_every_rounds": 1, "share": 0.5}},
            "CartPole has one role, so nothing reads 'past_players'",
        ),
        (
            {"learning_rate_schedule": {"kind": "constant", "warmup_steps": 99}},
            "the warm-up would never end",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_told(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        small_ppo(**changed)


HIRONAKA = {
    "kind": "hironaka", "dimension": 3, "max_num_points": 5, "max_value": 9, "scale_observation": True,
}  # fmt: skip


def hironaka() -> dict[str, Any]:
    """Return the section of Hironaka's game, whatever keys it has."""
    from ludus.config.registry import find

    data: dict[str, Any] = {**HIRONAKA, "polytope": "domination", "starts": None}
    return {key: data[key] for key in find("game", "hironaka").Config.model_fields}


def test_roles_that_see_different_things_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"host, agent, which see different things.*fused_dqn"):
        small_self_play(game=hironaka())


@pytest.mark.parametrize(
    "changed",
    [{"evaluation.target": 475.0}, {"evaluation.patience": 2, "evaluation.min_delta": 1.5}],
)
def test_a_win_rate_is_a_number_from_0_to_1(changed: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match="has an opponent, so it is of a win rate: a number from 0"
    ):
        small_self_play(**changed)


def test_self_play_needs_two_turns() -> None:
    with pytest.raises(ConfigError, match="is seen a turn later; use 2 or more"):
        small_self_play(rollout_steps=1)


def test_a_network_with_outputs_of_another_size_is_refused() -> None:
    for body, told in (
        (Body(outputs=3), r"returns \(\(2, 3\), \(2,\), None\) for 2 observations"),
        (Body(features=5), r"cannot take observations of shape \(B, 4\)"),
        (nn.Linear(4, 2), r"returns \(2, 2\) for 2 observations, not"),
    ):
        trainer = ludus.build_trainer(small_ppo())
        trainer.set_model(body)
        with pytest.raises(ConfigError, match=told):
            trainer.fit(runtime=InMemoryRuntime)


def test_a_network_of_a_script_is_the_one_that_learns() -> None:
    body = Body()
    before = body.policy_layer.weight.detach().clone()
    trainer: Any = ludus.build_trainer(small_ppo())
    trainer.set_model(body)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.network is body
    assert not torch.equal(body.policy_layer.weight, before)


@pytest.mark.parametrize("name", ["before_collect", "after_minibatch", "before_train_step"])
def test_a_hook_on_a_stage_that_a_fused_round_lacks_names_the_key_that_restores_it(
    name: str,
) -> None:
    heard: list[str] = []
    trainer = ludus.build_trainer(small_ppo(fused=True))
    trainer.add(type("Hook", (), {name: lambda self: heard.append(name)})())
    with pytest.raises(HookError, match=rf"Hook.{name} fits no node .* set fused: false"):
        trainer.fit(runtime=InMemoryRuntime)
    split = ludus.build_trainer(small_ppo())
    split.add(type("Hook", (), {name: lambda self: heard.append(name)})())
    split.fit(runtime=InMemoryRuntime)
    assert heard
    wrong = ludus.build_trainer(small_ppo(fused=True))
    wrong.add(type("Hook", (), {"before_iterat": lambda self: None})())
    with pytest.raises(HookError, match="before_iterate"):
        wrong.fit(runtime=InMemoryRuntime)


# Runs


def test_fit_makes_whole_rounds_of_at_least_so_many_updates() -> None:
    trainer = trained(small_ppo(), max_steps=13)
    assert trainer.run.counters["opt_steps"] == 18
    assert trainer.run.counters["round"] == 3
    assert trainer.config.keep_every_rounds == 0
    with pytest.raises(ConfigError, match="max_steps=0"):
        trained(small_ppo(), max_steps=0)


def test_an_evaluation_changes_nothing_in_training() -> None:
    judged = trained(small_ppo(**{"evaluation.actions": "sampled"}))
    alone = trained(small_ppo(evaluate_every_rounds=0))
    assert torch.equal(judged.flat.vectors[0], alone.flat.vectors[0])


def test_an_evaluation_begins_the_same_way_each_time_and_held_out_games_are_others() -> None:
    trainer = trained(small_ppo(**{"game.max_steps": 500, "evaluation.episodes": 40}))
    assert trainer.evaluate() == trainer.evaluate()
    kept = trainer.evaluate_weights(trainer.weights())
    assert kept["eval/return_mean"] != trainer.evaluate()["eval/return_mean"]
    assert kept != trainer.evaluate_weights(trainer.weights(), seed=5)
    assert kept == trainer.evaluate_weights(trainer.weights())


def test_both_seats_are_played_in_half_of_the_games_each() -> None:
    trainer = trained(small_self_play(**{"evaluation.episodes": 200}))
    metrics = trainer.evaluate()
    seats = [metrics[f"eval/{role}_win_rate"] for role in ("first", "second")]
    assert metrics["eval/win_rate"] == pytest.approx(sum(seats) / 2)
    # Whoever begins has the better chances.
    assert seats[0] > seats[1] > 0


def test_self_play_learns_to_beat_the_random_player() -> None:
    config = small_self_play(
        seed=2, max_rounds=40, num_games=64, rollout_steps=8, minibatches=4, widths=[32, 32], fused=True,
        keep_every_rounds=0, log_every_rounds=0, gamma=1.0, gae_lambda=0.7, entropy_coef=0.02,
        normalise_advantage=False,
        **{"evaluation.episodes": 400, "evaluate_every_rounds": 40, "optimizer.learning_rate": 0.005},
    )  # fmt: skip
    untrained: Any = ludus.build_trainer(config)
    untrained.prepare(max_steps=None)
    before, after = untrained.evaluate(), trained(config).evaluate()
    assert after["eval/win_rate"] > before["eval/win_rate"] + 0.25
    assert after["eval/loss_rate"] < before["eval/loss_rate"] - 0.2


def test_an_update_compares_with_the_policy_that_moved_legal_moves_and_all() -> None:
    once = {"max_rounds": 1, "num_epochs": 1, "minibatches": 1, "keep_every_rounds": 0}
    trainer: Any = ludus.build_trainer(small_self_play(**once))
    trainer.prepare(max_steps=None)
    rows = trainer.ppo.estimate(trainer.collect_rollout(0))
    trainer.ppo.step(rows, learning_rate=0.01)
    # Nothing has been learned yet, so every ratio is 1.
    assert trainer.ppo.metrics()["train/approx_kl"] == pytest.approx(0, abs=1e-6)
    assert trainer.ppo.metrics()["train/clip_fraction"] == 0
    trainer.ppo.step(rows, learning_rate=0.01)
    assert trainer.ppo.metrics()["train/approx_kl"] > 1e-6


PENDULUM: dict[str, Any] = {"game": {"kind": "pendulum", "max_steps": 8}, "reward_scale": 0.1}


def test_actions_that_are_numbers_are_drawn_around_means_and_learned_as_drawn() -> None:
    trainer = trained(small_ppo(**PENDULUM))
    rollout = trainer.collect_rollout(7)
    assert rollout.actions.shape == (5, 6, 1)
    assert rollout.actions.abs().max() > 2  # the game is given them within its bounds
    assert trainer.distribution.to_env(rollout.actions[0]).abs().max() <= 2
    assert float(trainer.network.log_std.detach()) != 0.0
    means = trainer.outputs(rollout.obs.flatten(0, 1))[0]
    player = trainer.evaluation.player(trainer.outputs, trainer.distribution)
    best = player.act(rollout.obs.flatten(0, 1), None, torch.Generator())
    assert torch.equal(best, means.clamp(-2, 2))


def test_the_log_probability_of_a_drawn_number_is_that_of_its_gaussian() -> None:
    trainer = trained(small_ppo(**PENDULUM))
    rollout = trainer.collect_rollout(7)
    columns = trainer.ppo.estimate(rollout).split(trainer.ppo._sizes, 1)
    normal = torch.distributions.Normal(
        trainer.outputs(columns[0])[0], trainer.network.log_std.exp()
    )
    assert torch.allclose(columns[2], normal.log_prob(columns[1]), atol=1e-5)


def test_a_loss_that_is_not_finite_ends_the_run_and_is_never_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = CartPole.play

    def without_end(self: Any, state: Any, role: str, actions: Tensor) -> Step:
        after, rewards_BR = play(self, state, role, actions)
        return Step(after, rewards_BR / 0.0)

    monkeypatch.setattr(CartPole, "play", without_end)
    trainer: Any = ludus.build_trainer(small_ppo(log_every_rounds=0))
    with pytest.raises(Diverged, match=r"train/loss became .*lower reward_scale"):
        trainer.fit(runtime=InMemoryRuntime)
    assert trainer.judge.best is None
    assert trainer.judge.score_states["return"].num_bad == 0  # it was not even judged


# Commands


def written(config: Any, folder: Path) -> str:
    path = folder / "config.yaml"
    path.write_text(config.to_yaml())
    return str(path)


def test_a_run_can_be_evaluated_played_reported_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call = in_process(monkeypatch, capsys)
    assert call("train", written(small_self_play(name="three"), tmp_path)).code == 0
    assert "eval/win_rate" in call("eval", "runs/three", "--episodes", "20").out
    for episode, seat in (("0", "first"), ("1", "second")):
        told = call("play", "runs/three", "--episode", episode).out
        assert f"{seat}: the network" in told
        assert "move 1: first plays " in told
        assert "X" in told
        assert "the game ended after" in told
    assert "not filmed" in call("play", "runs/three", "--out", "x.gif").refusal()
    assert call("report", "runs/three").code == 0
    counters = call("resume", "runs/three", "max_rounds=8", "--json").json["counters"]
    assert counters["round"] == 8


def test_an_exported_policy_plays_the_likeliest_legal_moves_by_numpy(tmp_path: Path) -> None:
    for config in (small_ppo(**PENDULUM), small_ppo(), small_self_play()):
        trainer = trained(config)
        path = tmp_path / config.game.kind
        trainer.export(trainer.weights(), path)
        policy = ludus.NumpyPolicy.load(path)
        obs_BO = trainer.collect_rollout(9).obs.flatten(0, 1)
        legal_BA = trainer.fused_game.legal(obs_BO, trainer.fused_game.roles[0])
        if legal_BA is not None:
            obs_BO, legal_BA = obs_BO[legal_BA.any(1)], legal_BA[legal_BA.any(1)]
        actions = policy(obs_BO.numpy(), None if legal_BA is None else legal_BA.numpy())
        player = trainer.evaluation.player(trainer.outputs, trainer.distribution)
        expected = player.act(obs_BO, legal_BA, torch.Generator())
        assert np.allclose(actions, expected.detach().numpy(), atol=1e-5)
    assert policy.has_masks


def test_the_plan_and_the_explanation_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = in_process(monkeypatch, capsys)
    config = written(small_ppo(fused=True, rounds_a_stage=2, log_every_rounds=2), tmp_path)
    made = "in plain PyTorch: Triton kernels need a CUDA device, and this one is cpu"
    assert f"iterate (2 whole rounds, {made})" in call("plan", config).out
    assert "how far one round may move" in call("explain", config, "clip").out.lower()


def test_what_would_be_ignored_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"so Evaluator would never be asked"):
        ludus.build_trainer(small_ppo()).set_evaluator(ludus.Evaluator(score=lambda agent: 0.0))
    with pytest.raises(ConfigError, match=r"'settings\.workers' is 4, but the games are tensors"):
        small_ppo(**{"settings.workers": 4})
    with pytest.raises(ConfigError, match="counted in rounds has no epochs"):
        small_ppo(**{"settings.checkpoint.every_epochs": 3})
