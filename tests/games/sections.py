"""Games and players as a config makes them."""

from __future__ import annotations

from typing import Any

from ludus.config.sections import StrictConfig, validate
from ludus.games.game import FusedGame
from ludus.games.kinds import GameSection, make_game
from ludus.games.player import Player, PlayerSection, make_player

HIRONAKA = {
    "kind": "hironaka", "dimension": 3, "max_num_points": 6, "max_value": 9, "scale_observation": False,
    "polytope": "domination", "starts": None,
}  # fmt: skip


class Table(StrictConfig):
    """A config with a game."""

    game: GameSection
    """What is played."""


class Seat(StrictConfig):
    """A config with a player."""

    player: PlayerSection
    """Who plays."""


def game_of(**data: Any) -> FusedGame:
    """Return the game of a section of a config."""
    return make_game(validate(Table, {"game": data}, source="the test").game)


def player_of(game: FusedGame, role: str, **data: Any) -> Player:
    """Return the player of a section of a config."""
    return make_player(validate(Seat, {"player": data}, source="the test").player, game, role)


def hironaka(**changes: Any) -> FusedGame:
    """Return a small game of Hironaka's."""
    return game_of(**{**HIRONAKA, **changes})
