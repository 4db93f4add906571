"""A section of a config makes a game, or is refused in a sentence."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from ludus.config import registry
from ludus.core.errors import ConfigError, LudusError
from ludus.games.choose import random_move
from ludus.games.game import Bounds
from ludus.games.player import ask
from ludus.games.rules.cartpole import CartPole
from ludus.games.rules.hironaka import Hironaka
from ludus.seeds import generator
from tests.games.sections import game_of, hironaka, player_of


@pytest.mark.covers("001-M7")
def test_the_games_are_the_files_in_rules() -> None:
    assert {"cartpole", "hironaka"} <= set(registry.kinds("game"))
    assert isinstance(hironaka(), Hironaka)
    assert isinstance(game_of(kind="cartpole", max_steps=9), CartPole)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "hironako"}, "no game kind is named 'hironako'. Did you mean 'hironaka'?"),
        ({"dimension": 1}, "'game.dimension'"),
        ({"max_num_points": 1}, "'game.max_num_points'"),
        ({"max_value": 0}, "'game.max_value'"),
    ],
)
def test_a_game_that_cannot_be_played_is_refused_by_its_key(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        hironaka(**changes)


def test_games_are_imported_without_gymnasium_or_triton() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = sys.modules['triton'] = None\n"
        "from ludus.config.registry import find, kinds\n"
        "import ludus.games\n"
        "ludus.games.make_game, ludus.games.make_player\n"
        "for category in ('game', 'player'):\n"
        "    for kind in kinds(category): find(category, kind)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Stubborn:
    """Always answers the same."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def act(self, obs_BO: torch.Tensor, legal_BA: object, generator: torch.Generator) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (torch.tensor([0, 2, 0]), "the agent of Hironaka played 2 in game 1, which is illegal"),
        (torch.tensor([0, 3, 0]), "the agent of Hironaka played 3 in game 1, which is illegal"),
        (torch.tensor([0, 0, -1]), "the agent of Hironaka played -1 in game 2, which is illegal"),
        (torch.tensor([0, 0]), r"gave actions of shape \(2,\); give \(3,\)"),
        (torch.tensor([0.0, 0.0, 0.0]), "gave torch.float32 actions; give whole numbers"),
        ([0, 0, 0], r"the agent of Hironaka gave a list; give a tensor"),
    ],
)
def test_an_illegal_action_of_a_players_own_is_refused_by_game_role_and_index(
    answer: Any, told: str
) -> None:
    game = hironaka(max_num_points=20)
    state = game.reset(3, generator(1, "start"))
    assert not game.over(state).any()
    state, _ = game.step(state, "host", torch.tensor([0, 0, 0]))
    with pytest.raises(LudusError, match=told):
        ask(Stubborn(answer), game, state, "agent", generator(0, "moves"))
    assert ask(Stubborn(torch.tensor([0, 1, 1])), game, state, "agent", generator(0, "moves")).any()


def test_a_role_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="Hironaka has no role 'hots', but host, agent"):
        player_of(hironaka(), "hots", kind="random")


def test_a_random_move_is_any_legal_one_as_often_as_any_other() -> None:
    legal = torch.tensor([[True, False, True, True], [False, False, False, True]])
    draws = torch.stack([random_move(legal, generator(0, "moves", k)) for k in range(3000)])
    counts = torch.stack([torch.bincount(column, minlength=4) for column in draws.T])
    assert counts[:, 1].tolist() == [0, 0]
    assert counts[1].tolist() == [0, 0, 0, 3000]
    assert ((counts[0, [0, 2, 3]] - 1000).abs() < 110).all()


def test_a_random_player_draws_numbers_between_the_bounds() -> None:
    class Dial(CartPole):
        moves = Bounds((-2.0, 0.0), (2.0, 0.5))

    player = player_of(Dial(max_steps=5), "player", kind="random")
    drawn = player.act(torch.zeros(2000, 4), None, generator(0, "moves"))
    assert drawn.shape == (2000, 2)
    torch.testing.assert_close(drawn.amin(0), torch.tensor([-2.0, 0.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(drawn.amax(0), torch.tensor([2.0, 0.5]), atol=0.01, rtol=0)


def test_numbers_outside_of_their_bounds_are_refused() -> None:
    class Dial(CartPole):
        moves = Bounds((-2.0, 0.0), (2.0, 0.5))

    game = Dial(max_steps=5)
    state = game.reset(2, generator(0, "start"))
    game.check_actions(state, "player", torch.tensor([[-2.0, 0.0], [2.0, 0.5]]))
    for wrong in (2.1, -2.1, torch.nan, torch.inf):
        with pytest.raises(LudusError, match=r"in game 1, .* numbers from \[-2.0, 0.0\] to \[2.0"):
            game.check_actions(state, "player", torch.tensor([[0.0, 0.0], [wrong, 0.5]]))
