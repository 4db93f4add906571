"""Shared code of the scripted players of Hironaka's game.

Shapes: B games, N points, D dimension, O features of an observation.
"""

from __future__ import annotations

from torch import Tensor

from ludus.core.errors import ConfigError
from ludus.games.game import FusedGame
from ludus.games.rules.hironaka import Hironaka

ROUNDING = 1e-5
"""Relative tolerance, as a share of the greatest number of a game, within which numbers count as equal:
points that are shown rescaled are rounded.
"""


def seated(game: FusedGame, role: str, *, kind: str, plays: str) -> Hironaka:
    """Return the game; raise ConfigError unless it is Hironaka's and the role is the one this kind plays."""
    if not isinstance(game, Hironaka) or role != plays:
        raise ConfigError(
            f"the player '{kind}' plays the {plays} of Hironaka's game, not the {role} of"
            f" {type(game).__name__}; 'random' plays every role of every game"
        )
    return game


def points_of(game: Hironaka, obs_BO: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points (B, N, D) that the host observes, and the mask (B, N) of those present."""
    size = game.max_num_points * game.dimension
    points_BND = obs_BO[:, :size].reshape(-1, game.max_num_points, game.dimension)
    return points_BND, points_BND[..., 0] >= 0
