"""The player that always chooses the last legal move."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.game import FusedGame
from ludus.games.player import num_moves


@register("player", "choose_last")
class ChooseLast:
    """Plays the last legal move of any game with discrete moves; Hironaka's agent takes the greatest
    coordinate."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["choose_last"]
        """The last legal move."""

    def __init__(self, config: StrictConfig, game: FusedGame, role: str) -> None:
        self.num_moves = num_moves(game, role, who="the player 'choose_last'")

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return a move for each game."""
        last = self.num_moves - 1
        if legal_BA is None:
            return torch.full((len(obs_BO),), last, device=obs_BO.device)
        return last - legal_BA.flip(1).int().argmax(1)
