"""A game as people read it: pictures of signs, numbers with names and units, moves by their names."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ludus.games.elementwise import ElementwiseGame, Numbers, Outcome
from ludus.games.game import Moves
from ludus.games.rules._drawing import Drawing
from ludus.games.rules.acrobot import Acrobot
from ludus.games.rules.cartpole import CartPole
from ludus.games.rules.connect_four import ConnectFour
from ludus.games.rules.pendulum import Pendulum


def shown(game: ElementwiseGame, *numbers: float) -> list[str]:
    state = {"numbers": torch.tensor([numbers]), "steps": torch.tensor([3])}
    return game.text(state, 0).splitlines()


@pytest.mark.parametrize(
    ("x", "angle", "place", "sign"),
    [(0.0, 0.0, 25, "|"), (2.4, 0.1, 49, "/"), (-2.4, -0.1, 1, "\\"), (9.0, 0.0, 49, "|")],
)
def test_a_cart_is_where_it_is_between_the_edges_and_its_pole_leans(
    x: float, angle: float, place: int, sign: str
) -> None:
    pole, track, told = shown(CartPole(max_steps=9), x, 0.5, angle, -0.25)
    assert len(track) == 51
    assert track.index("=") == place == pole.index(sign)
    degrees = math.degrees(angle)
    assert told == (f"cart {x:+.2f} m, +0.50 m/s; pole {degrees:+.1f} degrees, -0.25 rad/s, step 3")


def test_a_pendulum_points_where_its_angle_says() -> None:
    upright = shown(Pendulum(max_steps=9), 0.0, 1.0)
    assert [line.strip() for line in upright[:4]] == ["*", "*", "*", "o"]
    left = shown(Pendulum(max_steps=9), math.pi / 2, 1.0)
    assert left[3] == "******o"
    assert "+90 degrees from upright, +1.00 rad/s" in left[-1]
    assert "+0 degrees" in shown(Pendulum(max_steps=9), 2 * math.pi + 0.001, 1.0)[-1]


def test_an_acrobot_hangs_below_the_height_that_its_tip_must_pass() -> None:
    hanging = shown(Acrobot(max_steps=9), 0.0, 0.0, 0.5, 0.0)
    assert hanging[2] == "." * 17
    assert [line.strip() for line in hanging[4:9]] == ["o", "*", "+", "+", "+"]
    assert "tip at -2.00 m of 1 m, links +0.50 and +0.00 rad/s" in hanging[-1]
    assert "tip at +2.00 m" in shown(Acrobot(max_steps=9), math.pi, 0.0, 0.0, 0.0)[-1]


def test_moves_are_told_by_their_names() -> None:
    assert CartPole(max_steps=9).told("player", torch.tensor(1)) == "right"
    assert Acrobot(max_steps=9).told("player", torch.tensor(0)) == "torque to the left"
    assert Pendulum(max_steps=9).told("player", torch.tensor([-0.5])) == "-0.50 N m"
    assert ConnectFour().told("second", torch.tensor(6)) == "O at 6"


def begin(u0: Tensor) -> Numbers:
    return (u0,)


def features(height: Tensor) -> Numbers:
    return (height,)


def advance(height: Tensor, action: Tensor) -> Outcome:
    return height + action, 1.0, height > 5.0


class Climb(ElementwiseGame):
    begin = staticmethod(begin)
    features = staticmethod(features)
    advance = staticmethod(advance)
    moves = Moves(2)


def test_a_game_that_draws_nothing_tells_its_numbers_by_the_names_they_have() -> None:
    game = Climb(max_steps=9)
    assert shown(game, 0.5) == ["height 0.5, step 3"]
    assert game.told("player", torch.tensor(1)) == "1"


def test_what_is_beyond_the_edge_is_not_drawn() -> None:
    drawing = Drawing(1.0, rows=3)
    drawing.line((0.0, 0.0), (5.0, 0.0), "-")
    drawing.put((0.0, -1.0), "v")
    drawing.line((0.0, 5.0), (-5.0, -5.0), "!")
    assert drawing.rows() == ["", "  ---", "  v"]
