"""A section of a config becomes a game here: its `kind` names a file of `rules/` or one of your own."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, registered
from ludus.games.game import FusedGame

GameSection = Annotated[SerializeAsAny[StrictConfig], registered("game")]
"""The section of a config that says which game is played."""


def make_game(section: StrictConfig) -> FusedGame:
    """Return the game of this section; its keys are the keywords that the game's class is built with."""
    keywords = {name: getattr(section, name) for name in type(section).model_fields}
    game: FusedGame = find("game", keywords.pop("kind"))(**keywords)
    return game
