"""CartPole: push a cart left or right to balance the pole on it, as gymnasium's CartPole-v1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.elementwise import ElementwiseGame, Numbers, Outcome, absolute, cos, sin, where
from ludus.games.game import Moves

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1
HALF_LENGTH = 0.5
POLE_MOMENT = 0.05
FORCE = 10.0
SECONDS = 0.02
MAX_X = 2.4
MAX_ANGLE = 0.20943951023931953
_HALF_TRACK = 24


def begin(u0: Tensor, u1: Tensor, u2: Tensor, u3: Tensor) -> Numbers:
    """Return position, velocity, angle and angular velocity near 0."""
    return 0.1 * u0 - 0.05, 0.1 * u1 - 0.05, 0.1 * u2 - 0.05, 0.1 * u3 - 0.05


def features(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor) -> Numbers:
    """Return the whole state."""
    return x, v, angle, spin


def advance(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor, action: Tensor) -> Outcome:
    """Return the state 0.02 seconds later, by Euler's method; the reward is 1 per step."""
    force = where(action == 1, FORCE, -FORCE)
    sine = sin(angle)
    cosine = cos(angle)
    push = (force + POLE_MOMENT * (spin * spin) * sine) / TOTAL_MASS
    turn = (GRAVITY * sine - cosine * push) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) / TOTAL_MASS)
    )
    pull = push - POLE_MOMENT * turn * cosine / TOTAL_MASS
    x = x + SECONDS * v
    v = v + SECONDS * pull
    angle = angle + SECONDS * spin
    spin = spin + SECONDS * turn
    ended = (absolute(x) > MAX_X) | (absolute(angle) > MAX_ANGLE)
    return x, v, angle, spin, 1.0, ended


@register("game", "cartpole")
class CartPole(ElementwiseGame):
    """A pole to balance on a cart; two moves, left and right."""

    class Config(StrictConfig):
        """The length of a game."""

        kind: Literal["cartpole"]
        """The pole on a cart."""
        max_steps: Positive
        """Truncate a game after this many steps; gymnasium's CartPole-v1 has 500."""

    begin = staticmethod(begin)
    features = staticmethod(features)
    advance = staticmethod(advance)
    moves = Moves(2)
    names = ("left", "right")

    def picture(self, *numbers: float) -> Sequence[str]:
        """Return a drawing of the track with the cart on it, and of the leaning pole."""
        x, _, angle, _ = numbers
        place = min(max(round((x / MAX_X + 1) * _HALF_TRACK), 0), 2 * _HALF_TRACK)
        track = list("|" + "-" * (2 * _HALF_TRACK + 1) + "|")
        track[place : place + 3] = "[=]"
        lean = "|" if abs(angle) < 0.02 else "/" if angle > 0 else "\\"
        return " " * (place + 1) + lean, "".join(track)

    def described(self, *numbers: float) -> str:
        """Return the positions and velocities of cart and pole."""
        x, v, angle, spin = numbers
        degrees = math.degrees(angle)
        return f"cart {x:+.2f} m, {v:+.2f} m/s; pole {degrees:+.1f} degrees, {spin:+.2f} rad/s"
