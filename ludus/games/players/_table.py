"""Players whose rule is a line: random, the first and the last legal move, and all coordinates.

Shapes: B games, O features of an observation, A moves.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.choose import random_move
from ludus.games.game import Bounds, FusedGame
from ludus.games.player import num_moves
from ludus.games.players._hironaka import seated


@register("player", "random")
class Random:
    """Draws a legal move uniformly, or a number uniformly between its bounds; plays any game."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["random"]
        """Legal actions, uniformly at random."""

    def __init__(self, config: StrictConfig, game: FusedGame, role: str) -> None:
        self.what = game.actions(role)

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return an action for each game."""
        games, device = len(obs_BO), obs_BO.device
        if isinstance(self.what, Bounds):
            shares = torch.rand(games, len(self.what.low), generator=generator, device=device)
            sides = zip(shares.unbind(1), self.what.low, self.what.high, strict=True)
            return torch.stack([low + share * (high - low) for share, low, high in sides], 1)
        if legal_BA is None:
            legal_BA = torch.ones(1, self.what.count, dtype=torch.bool, device=device)
        return random_move(legal_BA.expand(games, -1), generator)


@register("player", "choose_first")
class ChooseFirst:
    """Plays the first legal move of any game with discrete moves; Hironaka's agent takes the least
    coordinate."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["choose_first"]
        """The first legal move."""

    def __init__(self, config: StrictConfig, game: FusedGame, role: str) -> None:
        num_moves(game, role, who="the player 'choose_first'")

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return a move for each game."""
        if legal_BA is None:
            return torch.zeros(len(obs_BO), dtype=torch.int64, device=obs_BO.device)
        return legal_BA.int().argmax(1)


@register("player", "choose_last")
class ChooseLast:
    """Plays the last legal move of any game with discrete moves; Hironaka's agent takes the greatest
    coordinate."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["choose_last"]
        """The last legal move."""

    def __init__(self, config: StrictConfig, game: FusedGame, role: str) -> None:
        self.last = num_moves(game, role, who="the player 'choose_last'") - 1

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return a move for each game."""
        if legal_BA is None:
            return torch.full((len(obs_BO),), self.last, device=obs_BO.device)
        return self.last - legal_BA.flip(1).int().argmax(1)


@register("player", "all_coordinates")
class AllCoordinates:
    """Chooses all coordinates, leaving every choice to the agent."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["all_coordinates"]
        """All coordinates, as the host of Hironaka's game."""

    def __init__(self, config: StrictConfig, game: FusedGame, role: str) -> None:
        host = seated(game, role, kind="all_coordinates", plays="host")
        self.action = host.actions("host").count - 1

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return the last of the host's moves, for each game."""
        return torch.full((len(obs_BO),), self.action, device=obs_BO.device)
