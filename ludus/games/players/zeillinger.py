"""Zeillinger's host, which wins against every agent: it plays by the pair of points that is closest to
merging.

Of the difference v of two points, L is its greatest less its least coordinate, and S is the number of
coordinates that equal either. The host takes the pair with the least (L, S) and chooses a coordinate where
v is the least and one where it is the greatest; whatever the agent picks, (L, S) decreases.

D. Zeillinger, A short solution to Hironaka's polyhedra game, L'Enseignement Mathematique 52 (2006).

Shapes: B games, N points, P pairs of them, D dimension.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.game import FusedGame
from ludus.games.hironaka.host_actions import encode_host_action
from ludus.games.players._hironaka import ROUNDING, points_of, seated


@register("player", "zeillinger")
class Zeillinger:
    """Plays by differences of points, independent of scale."""

    class Config(StrictConfig):
        """How ties between pairs are broken."""

        kind: Literal["zeillinger"]
        """Zeillinger's host of Hironaka's game."""
        lexicographic: bool
        """Break ties by the pair with the first coordinates, not by the first pair of points."""

    def __init__(self, config: Config, game: FusedGame, role: str) -> None:
        self.game = seated(game, role, kind="zeillinger", plays="host")
        self.lexicographic = config.lexicographic

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return a move for each game; where there is no pair, that of the first two coordinates."""
        points_BND, present_BN = points_of(self.game, obs_BO)
        one_P, other_P = torch.triu_indices(
            points_BND.shape[1], points_BND.shape[1], 1, device=obs_BO.device
        )
        differences_BPD = points_BND[:, one_P] - points_BND[:, other_P]
        is_pair_BP = present_BN[:, one_P] & present_BN[:, other_P]
        return self._chosen(differences_BPD, is_pair_BP, ROUNDING * points_BND.amax((1, 2)))

    def _chosen(self, differences_BPD: Tensor, is_pair_BP: Tensor, nearly_B: Tensor) -> Tensor:
        """Return the move of the pair with the least (L, S), with near-equal values taken as ties."""
        dimension = differences_BPD.shape[-1]
        highest_BP1, lowest_BP1 = (
            differences_BPD.amax(-1, keepdim=True),
            differences_BPD.amin(-1, keepdim=True),
        )
        is_highest_BPD = differences_BPD >= highest_BP1 - nearly_B.view(-1, 1, 1)
        is_lowest_BPD = differences_BPD <= lowest_BP1 + nearly_B.view(-1, 1, 1)
        widths_BP = (highest_BP1 - lowest_BP1).squeeze(-1).masked_fill(~is_pair_BP, torch.inf)
        is_narrow_BP = widths_BP <= (widths_BP.amin(1) + nearly_B).unsqueeze(1)
        counts_BP = is_highest_BPD.sum(-1) + is_lowest_BPD.sum(-1)
        counts_BP = counts_BP.masked_fill(~is_narrow_BP, 2 * dimension + 1)
        highest_at_BP, lowest_at_BP = (
            is_highest_BPD.int().argmax(-1),
            is_lowest_BPD.int().argmax(-1),
        )
        order_BP = counts_BP
        if self.lexicographic:
            first_BP = torch.minimum(highest_at_BP, lowest_at_BP)
            places_BP = first_BP * dimension + torch.maximum(highest_at_BP, lowest_at_BP)
            order_BP = counts_BP * dimension**2 + places_BP
        pair_B1 = order_BP.argmin(1, keepdim=True)
        axes_D = torch.arange(dimension, device=differences_BPD.device)
        named_BD = (highest_at_BP.gather(1, pair_B1) == axes_D) | (
            lowest_at_BP.gather(1, pair_B1) == axes_D
        )
        # All coordinates of a difference are equal only where there is no pair.
        named_BD = torch.where(named_BD.sum(1, keepdim=True) < 2, axes_D < 2, named_BD)
        return encode_host_action(named_BD)
