"""The tree of a game: every answer to a strategy, how deep it goes, and how it is printed."""

from __future__ import annotations

import pytest
import torch

from ludus.core.errors import ConfigError, LudusError
from ludus.games import game_tree
from ludus.games.rules.pendulum import Pendulum
from ludus.games.rules.tic_tac_toe import TicTacToe
from ludus.seeds import generator
from tests.games.sections import hironaka

ZEILLINGER = {"kind": "zeillinger", "lexicographic": False}


@pytest.mark.covers("001-S13")
def test_all_answers_of_the_agent_to_a_host_are_a_tree_that_people_read() -> None:
    game = hironaka(dimension=2, max_num_points=3)
    start = game.start(torch.tensor([[[4.0, 0.0], [1.0, 1.0], [0.0, 4.0]]]))
    tree = game_tree(game, {"host": ZEILLINGER}, start)
    assert str(tree).splitlines() == [
        "(4, 0) (1, 1) (0, 4)  the host names 0, 1",
        "├─ 0: (4, 0) (2, 1)  the host names 0, 1",
        "│  ├─ 0: (4, 0) (3, 1)  the host names 0, 1",
        "│  │  ├─ 0: (4, 0)  over",
        "│  │  └─ 1: (3, 4)  over",
        "│  └─ 1: (2, 3)  over",
        "└─ 1: (1, 2) (0, 4)  the host names 0, 1",
        "   ├─ 0: (3, 2)  over",
        "   └─ 1: (1, 3) (0, 4)  the host names 0, 1",
        "      ├─ 0: (4, 3)  over",
        "      └─ 1: (0, 4)  over",
    ]
    assert (tree.depth, tree.size, tree.is_decided) == (3, 11, True)
    cut = game_tree(game, {"host": ZEILLINGER}, start, max_depth=1)
    assert (cut.depth, cut.size, cut.is_decided) == (1, 3, False)
    assert str(cut).splitlines()[-1] == "└─ 1: (1, 2) (0, 4)  the host names 0, 1  ..."


def test_zeillingers_host_wins_against_every_answer() -> None:
    game = hironaka(dimension=3, max_num_points=3)
    start = game.start(torch.tensor([[[4.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 4.0, 0.0]]]))
    tree = game_tree(game, {"host": ZEILLINGER}, start)
    assert tree.is_decided
    # To name all coordinates does not end: the agent goes on with one of them for ever.
    endless = game_tree(game, {"host": {"kind": "all_coordinates"}}, start, max_depth=8)
    assert not endless.is_decided


def test_the_free_role_may_be_the_one_that_begins_and_boards_have_several_lines() -> None:
    game = TicTacToe()
    start = game.reset(1, generator(0, "start"))
    tree = game_tree(game, {"second": {"kind": "choose_first"}}, start, max_depth=1)
    assert sorted(tree.answers) == list(range(9))
    whole = game_tree(game, {"second": {"kind": "choose_first"}}, start)
    assert whole.is_decided
    assert whole.depth == 5
    lines = str(tree).splitlines()
    assert len(lines) == 30
    assert lines[3] == "├─ 0: . . .  ..."
    assert lines[4:6] == ["│     . . .", "│     X O ."]


def test_a_branch_may_be_deeper_than_pythons_calls() -> None:
    game = hironaka(dimension=2, max_num_points=2)
    start = game.start(torch.tensor([[[1100.0, 0.0], [0.0, 1.0]]]))
    tree = game_tree(game, {"host": ZEILLINGER}, start)
    assert tree.depth == 1100
    assert tree.is_decided
    assert len(str(tree).splitlines()) == tree.size == 2201


def test_what_has_no_tree_is_refused() -> None:
    game = hironaka()
    start = game.reset(1, generator(0, "start"))
    with pytest.raises(ConfigError, match="the tree of 3 games was asked for; give a state of one"):
        game_tree(game, {"host": ZEILLINGER}, game.reset(3, generator(0, "start")))
    with pytest.raises(ConfigError, match="2 roles of Hironaka are free; give players for all"):
        game_tree(game, {}, start)
    with pytest.raises(ConfigError, match="Hironaka has no role 'guest'"):
        game_tree(game, {"guest": ZEILLINGER}, start)
    with pytest.raises(ConfigError, match="Morin remembers its games, and a tree holds positions"):
        game_tree(game, {"agent": {"kind": "morin", "weights": [1.0] * 3}}, start)
    with pytest.raises(LudusError, match="more than max_positions 9; raise it, or give max_depth"):
        game_tree(game, {"host": {"kind": "all_coordinates"}}, start, max_positions=9)
    small = hironaka(dimension=2, max_num_points=3)
    points = torch.tensor([[[4.0, 0.0], [1.0, 1.0], [0.0, 4.0]]])
    with pytest.raises(LudusError, match="11 positions at depth 3, more than max_positions 10;"):
        game_tree(small, {"host": ZEILLINGER}, small.start(points), max_positions=10)
    swing = Pendulum(max_steps=5)
    with pytest.raises(ConfigError, match="a tree chooses among moves"):
        game_tree(swing, {}, swing.reset(1, generator(0, "start")))


def test_a_player_that_draws_its_moves_has_no_tree() -> None:
    game = hironaka(max_num_points=6)
    start = game.reset(1, torch.Generator().manual_seed(3))
    with pytest.raises(ConfigError, match="Random draws its moves, and a tree would hold one draw"):
        game_tree(game, {"host": {"kind": "random"}}, start, max_depth=2)
