"""The uniformly random player: the weakest baseline of every game."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.choose import random_move
from ludus.games.game import Bounds, FusedGame


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
