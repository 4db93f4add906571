"""Morin's agent: each coordinate has a weight, and the lightest of those the host chose is picked.

Then the weights of the other chosen coordinates become 0. Ties are broken at random.

Shapes: B games, D dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError
from ludus.games.choose import random_move
from ludus.games.game import FusedGame
from ludus.games.players._hironaka import seated


@register("player", "morin")
class Morin:
    """Keeps the weights of each game of the batch from move to move; `begin` resets them."""

    class Config(StrictConfig):
        """The initial weights."""

        kind: Literal["morin"]
        """Morin's agent of Hironaka's game."""
        weights: list[float]
        """The weight of each coordinate when a game begins; the lightest of those the host chose
        is picked."""

    def __init__(self, config: Config, game: FusedGame, role: str) -> None:
        dimension = seated(game, role, kind="morin", plays="agent").dimension
        if len(config.weights) != dimension:
            raise ConfigError(
                f"the player 'morin' has {len(config.weights)} weights, and the game {dimension}"
                " coordinates; give one for each"
            )
        self.first_weights = config.weights
        self._weights_BD: Tensor | None = None
        self._firsts: dict[torch.device, Tensor] = {}

    def begin(self, new_B: Tensor | None = None) -> None:
        """Reset the weights of all games, or of those that are new."""
        if new_B is None or self._weights_BD is None:
            self._weights_BD = None
            return
        first_D = self._first(self._weights_BD.device)
        self._weights_BD = torch.where(new_B.unsqueeze(1), first_D, self._weights_BD)

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return one of the chosen coordinates for each game."""
        assert legal_BA is not None
        weights_BD = self._weights_BD
        if weights_BD is None or len(weights_BD) != len(obs_BO):
            weights_BD = self._first(obs_BO.device).expand(len(obs_BO), -1)
        named_BD = weights_BD.masked_fill(~legal_BA, torch.inf)
        is_lightest_BD = legal_BA & (named_BD == named_BD.amin(1, keepdim=True))
        action_B = random_move(is_lightest_BD, generator)
        axes_D = torch.arange(weights_BD.shape[1], device=obs_BO.device)
        is_left_BD = legal_BA & (axes_D != action_B.unsqueeze(1))
        self._weights_BD = weights_BD.masked_fill(is_left_BD, 0.0)
        return action_B

    def _first(self, device: torch.device) -> Tensor:
        # Copied to a device once: the copy is a host sync, which a capture does not allow.
        if device not in self._firsts:
            self._firsts[device] = torch.tensor(self.first_weights, device=device)
        return self._firsts[device]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of the current games."""
        return {"weights": self._weights_BD}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the weights."""
        self._weights_BD = state["weights"]
