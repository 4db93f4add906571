"""What the scripted players of Hironaka's game share."""

from __future__ import annotations

from ludus.core.errors import ConfigError
from ludus.games.game import FusedGame
from ludus.games.rules.hironaka import Hironaka


def seated(game: FusedGame, role: str, *, kind: str, plays: str) -> Hironaka:
    """Return the game; raise ConfigError unless it is Hironaka's and the role is the one this kind plays."""
    if not isinstance(game, Hironaka) or role != plays:
        raise ConfigError(
            f"the player '{kind}' plays the {plays} of Hironaka's game, not the {role} of"
            f" {type(game).__name__}; 'random' plays every role of every game"
        )
    return game
