"""The host that always chooses all coordinates."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.game import FusedGame
from ludus.games.players._hironaka import seated


@register("player", "all_coordinates")
class AllCoordinates:
    """Chooses all coordinates, leaving every choice to the agent."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["all_coordinates"]
        """All coordinates, as the host of Hironaka's game."""

    def __init__(self, config: StrictConfig, game: FusedGame, role: str) -> None:
        self.action = (
            seated(game, role, kind="all_coordinates", plays="host").actions("host").count - 1
        )

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return the last of the host's moves, for each game."""
        return torch.full((len(obs_BO),), self.action, device=obs_BO.device)
