"""What each key of PPO on device games does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.nn.engines.compiled import CompiledMethod
from ludus.nn.engines.tape import Taped
from tests.games.ppo.small import SELF_PLAY, small_ppo, small_self_play
from tests.keys.runs import SGD, Outcome, differ, run
from tests.keys.table import changes
from tests.rl.odd_networks import engine_of

KIND = "fused_ppo"
ONE_UPDATE: dict[str, Any] = {
    "max_rounds": 1, "num_epochs": 1, "minibatches": 1, "keep_every_rounds": 0, "evaluate_every_rounds": 0,
}  # fmt: skip
PAST = {"size": 2, "keep_every_rounds": 1, "share": 0.5}


def prepared(**changed: Any) -> Any:
    """Return a trainer that is built but does not run."""
    trainer: Any = ludus.build_trainer(small_ppo(**changed))
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer


def rows(outcome: Outcome, index: int = 0) -> dict[str, torch.Tensor]:
    """Return the columns of a minibatch of CartPole."""
    obs, actions, log_probs, advantages, values = outcome.batches[index].split([4, 1, 1, 1, 1], 1)
    return {
        "obs": obs, "actions": actions, "log_probs": log_probs, "advantages": advantages,
        "values": values, "returns": advantages + values,
    }  # fmt: skip


@changes(KIND, "game")
def test_the_network_learns_the_game_that_is_named(kind: str) -> None:
    assert type(run(kind).trainer.fused_game).__name__ == "CartPole"
    lengths = run(kind, **{"game.max_steps": 3}).curve("eval/length_mean")
    assert set(lengths) == {3.0}


@changes(KIND, "max_rounds")
def test_a_run_has_so_many_rounds(kind: str) -> None:
    assert run(kind).counters["round"] == 6
    assert run(kind, max_rounds=4).counters["round"] == 4


@changes(KIND, "num_games", "rollout_steps")
def test_a_rollout_has_so_many_turns_of_so_many_games(kind: str) -> None:
    assert run(kind).counters["game_steps"] == 6 * 6 * 5
    assert run(kind, num_games=3).counters["game_steps"] == 6 * 3 * 5
    assert run(kind, rollout_steps=10).counters["game_steps"] == 6 * 6 * 10
    assert len(run(kind, num_games=3).trainer.live.returns_BR) == 3


@changes(KIND, "num_epochs", "minibatch_size")
def test_updates_go_so_often_through_so_many_pieces_of_a_rollout(kind: str) -> None:
    assert run(kind).counters["opt_steps"] == 6 * 2 * 3
    assert run(kind, num_epochs=5).counters["opt_steps"] == 6 * 5 * 3
    pieces = run(kind, minibatch_size=6)
    assert pieces.counters["opt_steps"] == 6 * 2 * 5
    assert len(pieces.batches[0]) == 30 // 5
    # Each pass goes through all rows, in an order of its own.
    first, second = (torch.cat(pieces.batches[at : at + 5]) for at in (0, 5))
    assert not torch.equal(first, second)
    assert torch.equal(first[first[:, 0].sort().indices], second[second[:, 0].sort().indices])


@changes(KIND, "fused")
def test_a_fused_round_is_one_stage_and_computes_the_same(kind: str) -> None:
    assert not differ(run(kind, fused=True), run(kind))
    names = [child.name for child in prepared(fused=True).plan().body[0].body]
    assert names == ["iterate", "evaluate", "record", "save"]
    assert prepared().plan().body[0].body[0].name == "collect"


@changes(KIND, "rounds_a_stage")
def test_a_stage_makes_so_many_rounds(kind: str) -> None:
    two = run(kind, fused=True, rounds_a_stage=2, log_every_rounds=2)
    assert [record.counters["round"] for record in two.records] == [2, 4, 6]
    assert not differ(two, run(kind))


@changes(KIND, "widths")
def test_hidden_layers_have_these_widths(kind: str) -> None:
    network = prepared(widths=[5, 7]).network
    assert [layer.out_features for layer in network.policy if hasattr(layer, "out_features")] == [
        5,
        7,
        2,
    ]


@changes(KIND, "reward_scale")
def test_rewards_are_scaled_for_learning_alone(kind: str) -> None:
    alone = {"gamma": 0.0, "gae_lambda": 0.0}
    plain, tenth = run(kind, **alone), run(kind, reward_scale=0.1, **alone)
    assert torch.allclose(rows(plain)["returns"], torch.ones(10, 1))
    assert torch.allclose(rows(tenth)["returns"], torch.full((10, 1), 0.1))
    assert min(tenth.curve("eval/return_mean")) > 1


@changes(KIND, "gamma")
def test_a_reward_one_turn_later_is_worth_gamma(kind: str) -> None:
    returns = rows(run(kind, gamma=0.0))["returns"]
    assert torch.allclose(returns, torch.ones_like(returns))
    assert rows(run(kind, gamma=0.9))["returns"].mean() > 1.2


@changes(KIND, "gae_lambda")
def test_advantages_look_as_far_ahead_as_lambda_says(kind: str) -> None:
    # The first rollout is the same for both, as are its values: only what is made of them differs.
    near, far = run(kind, gae_lambda=0.0), run(kind, gae_lambda=1.0)
    assert torch.equal(rows(near)["obs"], rows(far)["obs"])
    assert rows(far)["advantages"].mean() > rows(near)["advantages"].mean() + 0.3


@changes(KIND, "clip")
def test_ratios_are_clipped_at_this_distance(kind: str) -> None:
    hard = {"optimizer.learning_rate": 0.1}
    narrow, wide = run(kind, clip=0.01, **hard), run(kind, clip=10.0, **hard)
    assert max(narrow.curve("train/clip_fraction")) > 0.3
    assert max(wide.curve("train/clip_fraction")) == 0
    assert differ(narrow, wide)


@changes(KIND, "value_clip")
def test_a_value_that_moved_far_has_no_gradient_towards_it(kind: str) -> None:
    free, held = run(kind, value_clip=None), run(kind, value_clip=1e-3)
    assert differ(free, held)
    assert held.curve("train/value_loss")[0] >= free.curve("train/value_loss")[0]


@changes(KIND, "value_coef", "entropy_coef")
def test_the_loss_is_weighed_as_the_coefficients_say(kind: str) -> None:
    for value, entropy in ((0.5, 0.0), (0.0, 0.1), (2.0, 0.3)):
        outcome = run(kind, value_coef=value, entropy_coef=entropy, **ONE_UPDATE)
        names = ("loss", "policy_gradient_loss", "value_loss", "entropy_loss")
        loss, policy, error, minus = (outcome.curve(f"train/{name}")[0] for name in names)
        assert loss == pytest.approx(policy + value * error / 2 + entropy * minus, rel=1e-5)


@changes(KIND, "normalise_advantage")
def test_advantages_are_brought_to_mean_zero_where_it_is_asked_for(kind: str) -> None:
    # At the first update every ratio is 1, so the loss of the policy is minus the mean advantage.
    for is_on in (True, False):
        outcome = run(kind, normalise_advantage=is_on, **ONE_UPDATE)
        mean = 0.0 if is_on else -float(rows(outcome)["advantages"].mean())
        assert outcome.curve("train/policy_gradient_loss")[0] == pytest.approx(mean, abs=1e-5)


@changes(KIND, "optimizer")
def test_weights_move_by_the_optimizer_that_is_named(kind: str) -> None:
    ways = []
    for rate in (0.01, 0.001):
        outcome = run(kind, optimizer={**SGD, "learning_rate": rate}, **ONE_UPDATE)
        ways.append(outcome.moments[1]["model"] - outcome.moments[0]["model"])
    assert ways[0].abs().max() > 0
    assert torch.allclose(ways[0], 10 * ways[1], rtol=1e-2, atol=1e-5)


@changes(KIND, "learning_rate_schedule")
def test_the_learning_rate_follows_its_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 6}
    outcome = run(kind, learning_rate_schedule=falling)
    assert torch.equal(outcome.moments[6]["model"], outcome.moments[-1]["model"])
    assert not torch.equal(outcome.moments[5]["model"], outcome.moments[6]["model"])
    assert outcome.curve("train/learning_rate")[-1] == 0.0


@changes(KIND, "max_grad_norm")
def test_a_step_along_a_long_gradient_is_shortened(kind: str) -> None:
    for limit in (1e-3, 1e-4):
        outcome = run(kind, optimizer=SGD, max_grad_norm=limit, **ONE_UPDATE)
        way = outcome.moments[1]["model"] - outcome.moments[0]["model"]
        assert float(way.norm()) == pytest.approx(limit, rel=1e-2)


@changes(KIND, "precision")
def test_networks_compute_in_the_precision_and_weights_stay_float32(kind: str) -> None:
    coarse = run(kind, precision="bfloat16")
    assert differ(coarse, run(kind))
    assert coarse.weights.dtype == torch.float32


@changes(KIND, "engine")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_updates_are_executed_by_the_engine_that_is_named(
    kind: str, compiled_calls: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(kind)
    assert isinstance(engine_of(plain.trainer.ppo), Taped)
    assert not differ(plain, run(kind, engine="eager"))
    compiled = Outcome(small_ppo(engine="compiled"))
    assert len(compiled_calls) == compiled.counters["opt_steps"]
    assert torch.allclose(compiled.weights, plain.weights, atol=1e-4)
    for threshold, is_compiled in ((37, False), (36, True)):
        monkeypatch.setattr("ludus.games.ppo.learn.PpoUpdate.worth_compiling", threshold)
        found = engine_of(prepared(engine="auto").ppo)
        assert isinstance(found, CompiledMethod) == is_compiled


@changes(KIND, "log_every_rounds")
def test_a_record_is_written_every_so_many_rounds_and_after_an_evaluation(kind: str) -> None:
    never = {"evaluate_every_rounds": 0}
    for every, written in ((1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (0, [6]), (4, [4, 6])):
        outcome = run(kind, log_every_rounds=every, **never)
        assert [record.counters["round"] for record in outcome.records] == written
    evaluated = run(kind, log_every_rounds=0)
    assert [record.counters["round"] for record in evaluated.records] == [2, 4, 6]


@changes(KIND, "keep_every_rounds")
def test_weights_are_kept_every_so_many_rounds(kind: str) -> None:
    for every, names in ((4, ["models/24"]), (3, ["models/18", "models/36"]), (0, [])):
        kept = run(kind, keep_every_rounds=every).kept
        assert [name for name in kept if "best" not in name] == names


@changes(KIND, "evaluate_every_rounds")
def test_the_network_is_judged_every_so_many_rounds_and_after_the_last(kind: str) -> None:
    for every, judged in ((2, [2, 4, 6]), (4, [4, 6]), (100, [6]), (0, [])):
        outcome = run(kind, evaluate_every_rounds=every)
        found = [r.counters["round"] for r in outcome.records if "eval/return_mean" in r.scalars]
        assert found == judged


@changes(KIND, "evaluation.episodes")
def test_an_evaluation_has_so_many_games(kind: str) -> None:
    one = run(kind, **{"evaluation.episodes": 1})
    assert set(one.curve("eval/return_std")) == {0.0}
    assert max(run(kind, **{"game.max_steps": 500}).curve("eval/return_std")) > 0


@changes(KIND, "evaluation.actions")
def test_the_network_is_judged_by_its_best_actions_or_by_drawn_ones(kind: str) -> None:
    long = {"game.max_steps": 200}
    drawn = run(kind, **{"evaluation.actions": "sampled"}, **long)
    assert drawn.curve("eval/return_mean") != run(kind, **long).curve("eval/return_mean")
    assert not differ(drawn, run(kind, **long))


@changes(KIND, "evaluation.max_turns")
def test_an_evaluation_ends_after_so_many_turns(kind: str) -> None:
    assert set(run(kind, **{"evaluation.max_turns": 2}).curve("eval/length_mean")) == {2.0}


@changes(KIND, "evaluation.patience", "evaluation.min_delta")
def test_the_run_ends_when_evaluations_are_no_better(kind: str) -> None:
    # A network that does not learn is never better than the first time.
    still: dict[str, Any] = {"optimizer.learning_rate": 1e-12, "evaluate_every_rounds": 1}
    ended = run(kind, **still, **{"evaluation.patience": 2})
    assert ended.counters["round"] == 3
    assert "has not improved" in ended.result.reason
    # The third evaluation of this seed is better than the first, by less than a million.
    better = {"seed": 2, "evaluation.patience": 2, "evaluate_every_rounds": 1}
    assert run(kind, **better).counters["round"] > 3
    assert run(kind, **better, **{"evaluation.min_delta": 1e6}).counters["round"] == 3


@changes(KIND, "evaluation.target")
def test_the_run_ends_when_an_evaluation_reaches_the_target(kind: str) -> None:
    assert run(kind, **{"evaluation.target": 1.0}).counters["round"] == 2
    assert run(kind, **{"evaluation.target": 1e6}).counters["round"] == 6


@changes(KIND, "seed")
def test_the_seed_decides_the_run(kind: str) -> None:
    assert differ(run(kind, seed=1), run(kind))
    again = Outcome(small_ppo())
    assert not differ(again, run(kind))


@changes(KIND, "name")
def test_a_run_is_kept_under_its_name(kind: str, tmp_path: Any) -> None:
    trainer = ludus.build_trainer(small_ppo(name="mine", max_rounds=4))
    assert trainer.fit(root=str(tmp_path)).run_dir.endswith("mine")


@changes(KIND, "evaluation.opponent")
def test_self_play_is_judged_against_the_player_that_is_named(kind: str) -> None:
    outcome = Outcome(small_self_play())
    rates = [outcome.curve(f"eval/{name}_rate") for name in ("win", "draw", "loss")]
    assert all(sum(row) == pytest.approx(1) for row in zip(*rates, strict=True))
    assert type(outcome.trainer.evaluation.make_opponents()["second"]).__name__ == "Random"
    with pytest.raises(ConfigError, match="nobody to be judged against"):
        small_self_play(**{"evaluation.opponent": None})


@changes(KIND, "past_players", "past_players.size", "past_players.keep_every_rounds")
def test_networks_of_earlier_rounds_are_kept_so_often_and_so_many(kind: str) -> None:
    past = Outcome(small_self_play(past_players=PAST)).trainer.past
    assert (past.num_kept, len(past.rings[0])) == (6, 2)
    rare = Outcome(small_self_play(past_players={**PAST, "keep_every_rounds": 4, "size": 3}))
    assert rare.trainer.past.num_kept == 2
    assert len(rare.trainer.past.rings[0]) == 3
    assert Outcome(small_self_play()).trainer.past is None
    first = Outcome(small_self_play(past_players={**PAST, "keep_every_rounds": 0, "size": 1}))
    assert first.trainer.past.num_kept == 1
    untrained = prepared(**SELF_PLAY).flat.vectors[0]
    assert torch.equal(first.trainer.past.rings[0][0], untrained.detach())
    with pytest.raises(ConfigError, match="'past_players': 'size' is 2, but of"):
        small_self_play(past_players={**PAST, "keep_every_rounds": 0, "size": 2})


@changes(KIND, "past_players.share")
def test_they_play_one_role_in_this_share_of_the_games(kind: str) -> None:
    for share, count in ((0.5, 3), (1.0, 6), (1 / 3, 2)):
        past = Outcome(small_self_play(past_players={**PAST, "share": share})).trainer.past
        assert past.plays_RB.sum() == count
        assert past.plays_RB.sum(0).max() == 1
