"""Acrobot: swing two links by a motor between them until the tip is high, as in gymnasium's Acrobot-v1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.elementwise import (
    ElementwiseGame,
    Numbers,
    Outcome,
    cos,
    maximum,
    minimum,
    sin,
    where,
)
from ludus.games.game import Moves
from ludus.games.rules._drawing import Drawing, Point

PI = 3.141592653589793
HALF_PI = 1.5707963267948966
TURN = 6.283185307179586
GRAVITY = 9.8
SECONDS = 0.2
MAX_SPIN_1 = 12.566370614359172
MAX_SPIN_2 = 28.274333882308138


def begin(u0: Tensor, u1: Tensor, u2: Tensor, u3: Tensor) -> Numbers:
    """Return angles and angular velocities near 0, where both links hang."""
    return 0.2 * u0 - 0.1, 0.2 * u1 - 0.1, 0.2 * u2 - 0.1, 0.2 * u3 - 0.1


def features(angle_1: Tensor, angle_2: Tensor, spin_1: Tensor, spin_2: Tensor) -> Numbers:
    """Return cosine and sine of both angles, and the angular velocities; the second angle is relative to
    the first link."""
    return cos(angle_1), sin(angle_1), cos(angle_2), sin(angle_2), spin_1, spin_2


def accelerate(
    angle_1: Tensor, angle_2: Tensor, spin_1: Tensor, spin_2: Tensor, torque: Tensor
) -> Numbers:
    """Return both angular accelerations; links of length, mass and moment 1, with the centre of mass at
    half length."""
    inertia = 0.25 + (1.25 + cos(angle_2)) + 2.0
    coupling = (0.25 + 0.5 * cos(angle_2)) + 1.0
    weight_2 = 0.5 * GRAVITY * cos(angle_1 + angle_2 - HALF_PI)
    weight_1 = (
        -0.5 * (spin_2 * spin_2) * sin(angle_2)
        - spin_2 * spin_1 * sin(angle_2)
        + 1.5 * GRAVITY * cos(angle_1 - HALF_PI)
        + weight_2
    )
    change_2 = (
        torque + coupling / inertia * weight_1 - 0.5 * (spin_1 * spin_1) * sin(angle_2) - weight_2
    ) / (1.25 - coupling * coupling / inertia)
    return -(coupling * change_2 + weight_1) / inertia, change_2


def wrap(angle: Tensor) -> Tensor:
    """Return the angle wrapped to -pi to pi; a step turns a link less than twice."""
    angle = where(angle > PI, angle - TURN, angle)
    angle = where(angle > PI, angle - TURN, angle)
    angle = where(angle < -PI, angle + TURN, angle)
    return where(angle < -PI, angle + TURN, angle)


def advance(
    angle_1: Tensor, angle_2: Tensor, spin_1: Tensor, spin_2: Tensor, action: Tensor
) -> Outcome:
    """Return the state 0.2 seconds later, by a Runge-Kutta step; the reward is -1 per step until the end."""
    torque = where(action == 2, 1.0, where(action == 0, -1.0, 0.0))
    half = SECONDS / 2.0
    a1, a2 = accelerate(angle_1, angle_2, spin_1, spin_2, torque)
    v1 = spin_1 + half * a1
    v2 = spin_2 + half * a2
    b1, b2 = accelerate(angle_1 + half * spin_1, angle_2 + half * spin_2, v1, v2, torque)
    w1 = spin_1 + half * b1
    w2 = spin_2 + half * b2
    c1, c2 = accelerate(angle_1 + half * v1, angle_2 + half * v2, w1, w2, torque)
    x1 = spin_1 + SECONDS * c1
    x2 = spin_2 + SECONDS * c2
    d1, d2 = accelerate(angle_1 + SECONDS * w1, angle_2 + SECONDS * w2, x1, x2, torque)
    sixth = SECONDS / 6.0
    angle_1 = wrap(angle_1 + sixth * (spin_1 + 2.0 * v1 + 2.0 * w1 + x1))
    angle_2 = wrap(angle_2 + sixth * (spin_2 + 2.0 * v2 + 2.0 * w2 + x2))
    spin_1 = spin_1 + sixth * (a1 + 2.0 * b1 + 2.0 * c1 + d1)
    spin_2 = spin_2 + sixth * (a2 + 2.0 * b2 + 2.0 * c2 + d2)
    spin_1 = minimum(maximum(spin_1, -MAX_SPIN_1), MAX_SPIN_1)
    spin_2 = minimum(maximum(spin_2, -MAX_SPIN_2), MAX_SPIN_2)
    ended = -cos(angle_1) - cos(angle_2 + angle_1) > 1.0
    return angle_1, angle_2, spin_1, spin_2, where(ended, 0.0, -1.0), ended


@register("game", "acrobot")
class Acrobot(ElementwiseGame):
    """Two links to swing up; three moves: torque to the left, none, to the right."""

    class Config(StrictConfig):
        """The length of a game."""

        kind: Literal["acrobot"]
        """Two links with a motor between them."""
        max_steps: Positive
        """Truncate a game after this many steps; gymnasium's Acrobot-v1 has 500."""

    begin = staticmethod(begin)
    features = staticmethod(features)
    advance = staticmethod(advance)
    moves = Moves(3)
    names = ("torque to the left", "no torque", "torque to the right")

    def picture(self, *numbers: float) -> Sequence[str]:
        """Return a drawing of both links, and of the height that the tip has to pass."""
        drawing, (middle, tip) = Drawing(2.0, rows=9), _ends(*numbers)
        drawing.line((-2.0, 1.0), (2.0, 1.0), ".")
        drawing.line((0.0, 0.0), middle, "*")
        drawing.line(middle, tip, "+")
        drawing.put((0.0, 0.0), "o")
        return drawing.rows()

    def described(self, *numbers: float) -> str:
        """Return the height of the tip, and the rotation of the links."""
        height = _ends(*numbers)[1][1]
        return f"tip at {height:+.2f} m of 1 m, links {numbers[2]:+.2f} and {numbers[3]:+.2f} rad/s"


def _ends(angle_1: float, angle_2: float, *spins: float) -> tuple[Point, Point]:
    """Return the ends of the first and the second link; both hang at angle 0."""
    x, y = math.sin(angle_1), -math.cos(angle_1)
    return (x, y), (x + math.sin(angle_1 + angle_2), y - math.cos(angle_1 + angle_2))
