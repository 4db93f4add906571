"""Player: anything that chooses actions for a batch of games from what its role sees.

Shapes: B games, O features of an observation, A moves.
"""

from __future__ import annotations

from typing import Annotated, Protocol

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, registered
from ludus.core.errors import ConfigError, LudusError
from ludus.games.game import FusedGame, Moves, State

PlayerSection = Annotated[SerializeAsAny[StrictConfig], registered("player")]
"""The section of a config that names a scripted player."""


class Player(Protocol):
    """What chooses the actions of one role."""

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return an action for each game, drawing from this generator alone.

        legal_BA says which moves are legal; None means that all are. A player that remembers the games
        has a method `begin(new_B)` besides, which `begin` below calls when games begin.
        """


def make_player(section: StrictConfig, game: FusedGame, role: str) -> Player:
    """Return the scripted player of this section for one role of a game; refuse one that cannot play it."""
    game.check_role(role)
    kind: str = section.kind  # type: ignore[attr-defined]
    player: Player = find("player", kind)(section, game, role)
    return player


def begin(player: Player, new_B: Tensor | None = None) -> None:
    """Tell a player that remembers its games that those of a mask, or all, begin anew."""
    told = getattr(player, "begin", None)
    if told is not None:
        told(new_B)


def ask(
    player: Player, game: FusedGame, state: State, role: str, generator: torch.Generator
) -> Tensor:
    """Return the actions of a player, once they are seen to be legal; this waits for the device.

    Raises LudusError that names the game, the role and the index where they are not.
    """
    obs_BO = game.observe(state, role)
    actions = player.act(obs_BO, game.legal(obs_BO, role), generator)
    if not isinstance(actions, Tensor):
        raise LudusError(
            f"the {role} of {type(game).__name__} ({type(player).__name__}) gave a"
            f" {type(actions).__name__}; give a tensor with an action for each game"
        )
    game.check_actions(state, role, actions)
    return actions


def num_moves(game: FusedGame, role: str, kind: str) -> int:
    """Return how many moves a role has; raise ConfigError where its actions are numbers."""
    what = game.actions(role)
    if not isinstance(what, Moves):
        raise ConfigError(
            f"the player '{kind}' chooses among moves, and the {role} of {type(game).__name__} gives"
            " numbers between bounds; 'random' plays it"
        )
    return what.count
