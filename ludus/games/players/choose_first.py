"""The player that always chooses the first legal move."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.game import FusedGame
from ludus.games.player import num_moves


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
