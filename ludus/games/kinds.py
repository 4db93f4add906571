"""Make the game of a config section: its `kind` names a file of `rules/` or a registered game."""

from __future__ import annotations

import inspect
from typing import Annotated

from pydantic import SerializeAsAny

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, registered
from ludus.core.errors import LudusError
from ludus.games.first_turn import try_first_turn
from ludus.games.game import FusedGame

GameSection = Annotated[SerializeAsAny[StrictConfig], registered("game")]
"""The section of a config that selects the game."""


def make_game(section: StrictConfig) -> FusedGame:
    """Return the game of this section; its keys are keyword arguments of the game's class.

    Raises LudusError for a game that fails the check of its first turn.
    """
    keywords = {name: getattr(section, name) for name in type(section).model_fields}
    made = find("game", keywords.pop("kind"))
    try:
        inspect.signature(made).bind(**keywords)
    except TypeError as error:
        raise LudusError(
            f"the game {made.__name__} cannot be made of the keys of its Config ({error}); give its"
            " constructor a keyword for each key but kind"
        ) from None
    try:
        game: FusedGame = made(**keywords)
    except LudusError:
        raise
    except Exception as error:
        raise LudusError(
            f"the game {made.__name__} cannot be made of the keys it is given: {type(error).__name__}:"
            f" {error}; mend its constructor, or the keys"
        ) from error
    try_first_turn(game)
    return game


def num_roles(section: StrictConfig) -> int:
    """Return the number of roles of the game of this section."""
    roles = getattr(find("game", section.kind), "roles", None)  # type: ignore[attr-defined]
    return len(roles if isinstance(roles, tuple) else make_game(section).roles)
