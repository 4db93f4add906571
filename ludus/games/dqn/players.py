"""Players made of networks and of other players.

Shapes: B games, O features of an observation, A actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ludus.games.choose import best
from ludus.games.game import FusedGame
from ludus.games.player import Player, answered, begin


class ValuePlayer:
    """A value network that plays greedily and does not learn."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return the best legal actions."""
        with torch.no_grad():
            return best(self.net(obs_BO), legal_BA)


class Mixed:
    """Several players of one role, each in its share of a batch of games; the last has the
    remaining games."""

    def __init__(
        self, game: FusedGame, role: str, players: Sequence[tuple[Player, float]], last: Player
    ) -> None:
        self.game, self.role = game, role
        self.players, self.last = list(players), last

    @property
    def members(self) -> list[Player]:
        """All players."""
        return [*(player for player, _ in self.players), self.last]

    def begin(self, new_B: Tensor | None) -> None:
        """Tell stateful players that these games are new."""
        for player, part in self._parts(0 if new_B is None else len(new_B)):
            begin(player, None if new_B is None else new_B[part])

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return the actions of each player in its games."""
        parts = []
        for player, part in self._parts(len(obs_BO)):
            if part.start < part.stop:
                legal = None if legal_BA is None else legal_BA[part]
                found = answered(player, self.game, self.role, obs_BO[part], legal, generator)
                parts.append(found)
        return torch.cat(parts)

    def _parts(self, games: int) -> Iterator[tuple[Player, slice]]:
        """Yield each player with the slice of its games."""
        share, start = 0.0, 0
        for player, own in (*self.players, (self.last, 1.0)):
            share = min(share + own, 1.0)
            end = round(share * games)
            yield player, slice(start, end)
            start = end
