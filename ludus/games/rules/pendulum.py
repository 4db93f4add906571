"""Pendulum: swing a pole up by a torque and hold it there, as gymnasium's Pendulum-v1."""

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
    floor,
    maximum,
    minimum,
    sin,
)
from ludus.games.game import Bounds
from ludus.games.rules._drawing import Drawing

PI = 3.141592653589793
TURN = 6.283185307179586
MAX_TORQUE = 2.0
MAX_SPIN = 8.0
SECONDS = 0.05
# 3 g / (2 l) and 3 / (m l^2), for a pole of length and mass 1 where g is 10.
FALL = 15.0
PUSH = 3.0


def begin(u0: Tensor, u1: Tensor) -> Numbers:
    """Return a uniform angle, and an angular velocity from -1 to 1."""
    return TURN * u0 - PI, 2.0 * u1 - 1.0


def features(angle: Tensor, spin: Tensor) -> Numbers:
    """Return the position of the tip and the angular velocity; the angle is 0 when the pole is upright."""
    return cos(angle), sin(angle), spin


def advance(angle: Tensor, spin: Tensor, torque: Tensor) -> Outcome:
    """Return the state 0.05 seconds later; the cost is quadratic in angle, angular velocity and torque."""
    torque = minimum(maximum(torque, -MAX_TORQUE), MAX_TORQUE)
    tilt = angle - TURN * floor((angle + PI) / TURN)
    cost = tilt * tilt + 0.1 * (spin * spin) + 0.001 * (torque * torque)
    spin = spin + (FALL * sin(angle) + PUSH * torque) * SECONDS
    spin = minimum(maximum(spin, -MAX_SPIN), MAX_SPIN)
    angle = angle + spin * SECONDS
    # It never terminates: no angular velocity exceeds the maximum.
    return angle, spin, -cost, spin > MAX_SPIN


@register("game", "pendulum")
class Pendulum(ElementwiseGame):
    """A pole to swing up; the action is a torque from -2 to 2."""

    class Config(StrictConfig):
        """The length of a game."""

        kind: Literal["pendulum"]
        """The pendulum on a motor."""
        max_steps: Positive
        """Truncate a game after this many steps; gymnasium's Pendulum-v1 has 200."""

    begin = staticmethod(begin)
    features = staticmethod(features)
    advance = staticmethod(advance)
    moves = Bounds((-MAX_TORQUE,), (MAX_TORQUE,))
    names = ("N m",)

    def picture(self, *numbers: float) -> Sequence[str]:
        """Return a drawing of the pole around its pivot."""
        drawing, angle = Drawing(1.0, rows=7), numbers[0]
        drawing.line((0.0, 0.0), (-math.sin(angle), math.cos(angle)), "*")
        drawing.put((0.0, 0.0), "o")
        return drawing.rows()

    def described(self, *numbers: float) -> str:
        """Return the angle from upright, to the left or to the right, and the rotation."""
        angle, spin = numbers
        degrees = math.degrees(math.remainder(angle, TURN))
        return f"pole {degrees:+.0f} degrees from upright, {spin:+.2f} rad/s"
