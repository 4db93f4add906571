"""Connect Four and tic-tac-toe by their rules, against an obvious version and by counting."""

from __future__ import annotations

import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.games.choose import random_move
from ludus.games.rules._stones import StonesGame
from ludus.games.rules.connect_four import ConnectFour
from ludus.games.rules.tic_tac_toe import TicTacToe
from ludus.seeds import generator


def played(game: StonesGame, moves: list[int]) -> tuple[dict[str, torch.Tensor], list[list[float]]]:
    """Return the state after these moves, and the rewards of each."""
    state, rewards = game.reset(1, generator(0, "start")), []
    for number, move in enumerate(moves):
        role = game.roles[number % 2]
        game.check_actions(state, role, torch.tensor([move]))
        state, gained = game.step(state, role, torch.tensor([move]))
        rewards += gained.tolist()
    return state, rewards


@pytest.mark.covers("001-M7")
def test_there_are_255168_games_of_tic_tac_toe() -> None:
    game = TicTacToe()
    state = game.reset(1, generator(0, "start"))
    ended, wins = [], {1.0: 0, -1.0: 0, 0.0: 0}
    for turn in range(9):
        role = game.roles[turn % 2]
        legal = game.legal(game.observe(state, role), role)
        rows, moves = legal.nonzero(as_tuple=True)
        state, rewards = game.step({k: v[rows] for k, v in state.items()}, role, moves)
        over = game.over(state)
        ended.append(int(over.sum()))
        assert (rewards.sum(1) == 0).all()
        for gain in wins:
            wins[gain] += int((rewards[over, 0] == gain).sum())
        state = {k: v[~over] for k, v in state.items()}
    assert ended == [0, 0, 0, 0, 1440, 5328, 47952, 72576, 127872]
    assert wins == {1.0: 131184, -1.0: 77904, 0.0: 46080}


class Board:
    """Connect Four as one would write it for a single game."""

    def __init__(self) -> None:
        self.columns: list[list[int]] = [[] for _ in range(7)]
        self.ended = False

    def at(self, column: int, row: int) -> int | None:
        inside = 0 <= column < 7 and 0 <= row < len(self.columns[column])
        return self.columns[column][row] if inside else None

    def drop(self, column: int, seat: int) -> tuple[float, float]:
        if self.ended:
            return 0.0, 0.0
        self.columns[column].append(seat)
        row = len(self.columns[column]) - 1
        for right, up in ((1, 0), (0, 1), (1, 1), (1, -1)):
            length = 1
            for way in (1, -1):
                k = 1
                while self.at(column + way * k * right, row + way * k * up) == seat:
                    length, k = length + 1, k + 1
            if length >= 4:
                self.ended = True
                return (1.0, -1.0) if seat == 0 else (-1.0, 1.0)
        self.ended = all(len(stones) == 6 for stones in self.columns)
        return 0.0, 0.0

    def seen(self, seat: int) -> list[float]:
        order = (seat, 1 - seat)
        cells = [(who, row, col) for who in order for row in range(6) for col in range(7)]
        return [float(self.at(col, row) == who) for who, row, col in cells]


def test_connect_four_plays_as_the_obvious_version_does() -> None:
    game, moves = ConnectFour(), generator(3, "moves")
    state, boards = game.reset(300, moves), [Board() for _ in range(300)]
    outcomes = set()
    for turn in range(42):
        seat, role = turn % 2, game.roles[turn % 2]
        obs = game.observe(state, role)
        assert obs.tolist() == [board.seen(seat) for board in boards]
        legal = game.legal(obs, role)
        assert legal.tolist() == [[len(c) < 6 for c in board.columns] for board in boards]
        actions = random_move(legal, moves)
        state, rewards = game.step(state, role, actions)
        found = [b.drop(a, seat) for b, a in zip(boards, actions.tolist(), strict=True)]
        assert [tuple(row) for row in rewards.tolist()] == found
        assert game.over(state).tolist() == [board.ended for board in boards]
        outcomes |= set(found)
    assert game.over(state).all()
    assert len(outcomes) == 3


@pytest.mark.parametrize(
    ("moves", "winner"),
    [
        ([0, 1, 0, 1, 0, 1, 0], 0),
        ([6, 0, 6, 1, 5, 2, 5, 3], 1),
        ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], 0),
        ([6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3], 0),
        # Three at the top of a column and one at the bottom of the next are no line.
        ([1, 0, 6, 0, 6, 0, 0, 5, 0, 5, 0], None),
    ],
)
def test_four_in_a_line_win_and_no_line_runs_round_the_edge(
    moves: list[int], winner: int | None
) -> None:
    state, rewards = played(ConnectFour(), moves)
    assert all(row == [0.0, 0.0] for row in rewards[:-1])
    wanted = {0: [1.0, -1.0], 1: [-1.0, 1.0], None: [0.0, 0.0]}[winner]
    assert rewards[-1] == wanted
    assert bool(state["ended"]) == (winner is not None)


def test_each_player_sees_its_own_stones_first() -> None:
    for game in (ConnectFour(), TicTacToe()):
        state, _ = played(game, [0, 1])
        first, second = (game.named(game.observe(state, role), role)[0] for role in game.roles)
        assert first[0, 0, :2].tolist() == [1.0, 0.0]
        assert first[1, 0, :2].tolist() == [0.0, 1.0]
        assert torch.equal(first, second.flip(0))
        assert game.is_symmetric


def test_a_board_is_drawn_as_people_see_it() -> None:
    state, _ = played(ConnectFour(), [3, 3, 2])
    lines = ConnectFour().text(state, 0).splitlines()
    assert lines[-3:] == [". . . O . . .", ". . X X . . .", "0 1 2 3 4 5 6"]
    assert len(lines) == 7


def test_a_full_column_and_a_batch_of_no_games_are_refused() -> None:
    game = ConnectFour()
    with pytest.raises(Exception, match="the first of ConnectFour played 0 in game 0"):
        played(game, [0, 0, 0, 0, 0, 0, 0])
    with pytest.raises(ConfigError, match="a batch of 0 games was asked for"):
        game.reset(0, generator(0, "start"))
