"""Games that are over at their start: nobody moves in them, and nothing is learned from them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.elementwise import is_plain, own_function
from ludus.games.game import FusedGame, Moves, State, Step
from ludus.games.kernels.ppo.layout import _why_not_game
from ludus.games.ppo import evaluate
from ludus.games.ppo.collect import collect
from ludus.games.ppo.live import LiveGames
from ludus.games.rules.cartpole import CartPole
from ludus.games.trainers import fused_ppo
from ludus.nn.distributions import Categorical
from tests.games.ppo.small import small_ppo, small_self_play

CPU = torch.device("cpu")


class Heap(FusedGame):
    """Take one or two from a heap of 0 to 3; every move is worth 1 to who makes it, and none is worth 7."""

    def __init__(self, roles: tuple[str, ...] = ("player",), largest: int = 3) -> None:
        self.roles = roles
        self.is_symmetric = True
        self.largest = largest

    def actions(self, role: str) -> Moves:
        return Moves(2)

    def observation_size(self, role: str) -> int:
        return 1

    def reset(self, games: int, generator: torch.Generator) -> State:
        heap_B = torch.randint(
            self.largest + 1, (games,), generator=generator, device=generator.device
        )
        return {"heap": heap_B}

    def observe(self, state: State, role: str) -> Tensor:
        return state["heap"].unsqueeze(1).float()

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        heap_B = (state["heap"] - 1 - actions).clamp(min=0)
        gains_BR = torch.zeros(len(heap_B), len(self.roles), device=heap_B.device)
        gains_BR[:, self.roles.index(role)] = torch.where(state["heap"] > 0, 1.0, 7.0)
        return Step({"heap": heap_B}, gains_BR)

    def done(self, state: State) -> Tensor:
        return state["heap"] == 0


def always_one(obs_BO: Tensor, role: int) -> tuple[Tensor, None]:
    return torch.tensor([30.0, -30.0]).expand(len(obs_BO), 2), None


@pytest.mark.parametrize("roles", [("player",), ("first", "second")])
def test_nobody_moves_in_a_game_that_is_over_at_its_start(roles: tuple[str, ...]) -> None:
    live = LiveGames(Heap(roles), num_games=32, seed=0, device=CPU)
    began_over = live.state["heap"] == 0
    assert began_over.any()
    rollout = collect(live, always_one, Categorical(2), iteration=0, turns=6, by_others_RB=None)
    assert rollout.kept is not None
    over_TN = rollout.obs[:, :, 0] == 0
    assert over_TN[:, :32].any()
    assert not rollout.kept[over_TN].any()
    assert rollout.kept.any()
    assert not rollout.rewards[over_TN].any()
    assert rollout.rewards.max() == 1.0
    found = live.take_metrics()
    # One is taken at a time, so a heap of 1 to 3 has as many moves: those of 0 are not among the games.
    assert found["rollout/ep_len_mean"] >= 1.5
    assert found["rollout/episodes"] > 0


def with_game(game: FusedGame, config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_ppo, "make_game", lambda section: game)
        trainer.fit(runtime=InMemoryRuntime)
    return trainer


def test_a_run_whose_games_are_all_over_at_their_start_is_refused() -> None:
    with pytest.raises(ConfigError, match="all 6 games of Heap are over at their start"):
        with_game(Heap(largest=0), small_ppo())


def test_an_evaluation_is_of_the_games_that_begin() -> None:
    trainer = with_game(Heap(largest=1), small_ppo(**{"evaluation.episodes": 400}))
    # A heap of one has one move, a heap of none is no game.
    found = trainer.evaluate()
    assert found["eval/return_mean"] == found["eval/length_mean"] == 1.0
    trainer.fused_game.largest = 0
    with pytest.raises(ConfigError, match="all 400 games of an evaluation are over at their start"):
        trainer.evaluate()


def test_a_number_of_games_that_the_roles_cannot_share_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'evaluation.episodes' is 7, of which each of the 2.*use 8"
    ):
        small_self_play(**{"evaluation.episodes": 7})
    trainer: Any = ludus.build_trainer(small_self_play())
    trainer.prepare(max_steps=None)
    with pytest.raises(LudusError, match=r"'episodes' is 7, of which each of the 2 roles.*use 8"):
        trainer.evaluate_weights(trainer.weights(), episodes=7)


def test_an_evaluation_looks_at_the_moves_of_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    whole = evaluate.moments

    def spied(*given: Any, checked: Any, **named: Any) -> Any:
        seen.append(checked)
        return whole(*given, checked=checked, **named)

    monkeypatch.setattr(evaluate, "moments", spied)
    for config in (small_ppo(), small_self_play()):
        trainer: Any = ludus.build_trainer(config)
        trainer.prepare(max_steps=None)
        trainer.evaluate()
    assert seen == [[], ["second"], ["first"]]


@pytest.mark.parametrize("game", [Heap(), CartPole(max_steps=9)])
def test_every_round_has_new_games_of_its_own(game: FusedGame) -> None:
    live = LiveGames(game, num_games=64, seed=0, device=CPU)
    name = next(iter(live.state))
    rounds = [torch.stack([new[name] for new in live.starts(at, 2)]) for at in (0, 1, 0)]
    assert torch.equal(rounds[0], rounds[2])
    assert not torch.equal(rounds[0], rounds[1])
    assert not torch.equal(rounds[0][0], rounds[0][1])


class Far(CartPole):
    """Begins far from the middle, by a reset of its own."""

    def reset(self, games: int, generator: torch.Generator) -> State:
        state = super().reset(games, generator)
        return {**state, "numbers": state["numbers"] + torch.tensor([2.0, 0.0, 0.0, 0.0])}


class Twice(CartPole):
    """Counts every reward twice, in a step of its own."""

    def step(self, state: State, role: str, actions: Tensor) -> Step:
        after, rewards_BR = super().step(state, role, actions)
        return Step(after, 2 * rewards_BR)


class Brief(CartPole):
    """Is over after three moves, which only its own `over` says."""

    def over(self, state: State) -> Tensor:
        return super().over(state) | (state["steps"] >= 3)


def test_a_game_of_numbers_is_trained_by_its_own_reset_and_step() -> None:
    far = LiveGames(Far(max_steps=9), num_games=6, seed=0, device=CPU)
    assert far.state["numbers"][:, 0].min() > 1.9
    assert all(new["numbers"][:, 0].min() > 1.9 for new in far.starts(0, 2))
    assert collected(far).obs[:, :, 0].min() > 1.5
    twice = LiveGames(Twice(max_steps=9), num_games=6, seed=0, device=CPU)
    assert collected(twice).rewards.unique().tolist() == [2.0]
    brief = LiveGames(Brief(max_steps=9), num_games=6, seed=0, device=CPU)
    rollout = collected(brief)
    # It is cut off after three moves, so that its last position has a value, and begins anew.
    assert rollout.over.all(1).tolist() == [False, False, True, False]
    assert not rollout.ended.any()
    assert rollout.after[2, :, 0].tolist() != rollout.obs[3, :, 0].tolist()
    assert (brief.state["steps"] == 1).all()
    for game in (far.game, twice.game, brief.game):
        assert not is_plain(game)
        assert "of its own, which a kernel cannot inline" in str(_why_not_game(game))
    trainer = with_game(Twice(max_steps=9), small_ppo(fused=False))
    assert trainer.pending_rollout._like["rollout"]["kept"] is not None
    assert trainer.evaluate()["eval/return_mean"] == 2 * trainer.evaluate()["eval/length_mean"]


def collected(live: LiveGames) -> Any:
    return collect(live, always_one, Categorical(2), iteration=0, turns=4, by_others_RB=None)


def test_a_plain_game_of_numbers_is_one_whose_three_functions_are_all() -> None:
    game = CartPole(max_steps=9)
    assert is_plain(game)
    assert not is_plain(Heap())
    vars(game)["over"] = game.over
    assert own_function(game) == "over"
    assert not is_plain(game)
