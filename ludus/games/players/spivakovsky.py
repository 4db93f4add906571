"""Spivakovsky's host, which wins against every agent, and a weak one that only hits every point.

The points are moved down to the coordinate planes and divided by the least sum d of their coordinates. All
coordinates that are positive in a point of least sum are chosen. Points whose chosen coordinates sum to
less than 1 are projected along these: the rest of x is divided by 1 minus that sum. This repeats with the
remaining points, until none is left, or one point lies below all others; then the fewest coordinates are
added that sum to 1 or more in it.

M. Spivakovsky, A solution to Hironaka's polyhedra game, Arithmetic and Geometry II (1983).

Shapes: B games, N points, D dimension, G sets of coordinates, the smallest first.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.choose import random_move
from ludus.games.game import FusedGame
from ludus.games.hironaka.host_actions import encode_host_action
from ludus.games.players._hironaka import ROUNDING, points_of, seated


@register("player", "spivakovsky")
class Spivakovsky:
    """Plays by sums of coordinates, independent of scale."""

    class Config(StrictConfig):
        """The variant of the strategy."""

        kind: Literal["spivakovsky"]
        """Spivakovsky's host of Hironaka's game."""
        variant: Literal["full", "weak", "random"]
        """full: the whole rule; otherwise the smallest set that holds a positive coordinate of each point,
        the first such set (weak) or a random one (random).
        """

    def __init__(self, config: Config, game: FusedGame, role: str) -> None:
        self.game = seated(game, role, kind="spivakovsky", plays="host")
        self.variant = config.variant

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return a move for each game; where the rule chooses fewer than two coordinates, the first two."""
        points_BND, present_BN = points_of(self.game, obs_BO)
        if self.variant == "full":
            named_BD = named_by_rule(points_BND, present_BN)
        else:
            pick = generator if self.variant == "random" else None
            named_BD = _hitting(points_BND, present_BN, pick)
        first_two_D = torch.arange(self.game.dimension, device=obs_BO.device) < 2
        is_move_B1 = named_BD.sum(1, keepdim=True) >= 2
        return encode_host_action(torch.where(is_move_B1, named_BD, first_two_D))


def named_by_rule(points_BND: Tensor, present_BN: Tensor) -> Tensor:
    """Return (B, D) the coordinates that the full rule chooses."""
    points_BND = points_BND.double()
    inside_BN = present_BN
    named_BD = torch.zeros_like(points_BND[:, 0], dtype=torch.bool)
    is_open_B = inside_BN.any(1)
    for _ in range(points_BND.shape[2]):
        moved_BND = _moved(points_BND, inside_BN, named_BD)
        sums_BN = moved_BND.sum(2).masked_fill(~inside_BN, torch.inf)
        least_B = sums_BN.amin(1)
        scale_B = moved_BND.masked_fill(~inside_BN.unsqueeze(2), 0.0).amax((1, 2))
        is_open_B = is_open_B & inside_BN.any(1) & (least_B > ROUNDING * scale_B)
        shares_BND = moved_BND / least_B.where(is_open_B, 1.0).view(-1, 1, 1)
        is_least_BN = inside_BN & (shares_BND.sum(2) <= 1.0 + ROUNDING)
        new_BD = (is_least_BN.unsqueeze(2) & (shares_BND > ROUNDING)).any(1)
        taken_BN = (shares_BND * new_BD.unsqueeze(1)).sum(2)
        below_BN = inside_BN & (taken_BN < 1.0 - ROUNDING)
        projected_BND = shares_BND / (1.0 - taken_BN).where(below_BN, 1.0).unsqueeze(2)
        points_BND = torch.where(is_open_B.view(-1, 1, 1), projected_BND, points_BND)
        inside_BN = torch.where(is_open_B.unsqueeze(1), below_BN, inside_BN)
        named_BD = named_BD | (new_BD & is_open_B.unsqueeze(1))
    return named_BD | _fewest(points_BND, inside_BN, named_BD)


def _moved(points_BND: Tensor, inside_BN: Tensor, named_BD: Tensor) -> Tensor:
    """Return the points moved to the coordinate planes, without the coordinates already chosen."""
    lowest_B1D = points_BND.masked_fill(~inside_BN.unsqueeze(2), torch.inf).amin(1, keepdim=True)
    is_counted_BND = inside_BN.unsqueeze(2) & ~named_BD.unsqueeze(1)
    return torch.where(is_counted_BND, points_BND - lowest_B1D, 0.0)


def _fewest(points_BND: Tensor, inside_BN: Tensor, named_BD: Tensor) -> Tensor:
    """Return the smallest set of other coordinates that sum to 1 or more in every point inside."""
    sets_GD = _sets(points_BND.shape[2], points_BND)
    sums_BNG = points_BND @ sets_GD.T.to(points_BND)
    enough_BG = (sums_BNG.masked_fill(~inside_BN.unsqueeze(2), torch.inf) >= 1.0 - ROUNDING).all(1)
    is_new_BG = ~(named_BD.unsqueeze(1) & sets_GD).any(2)
    return sets_GD[(enough_BG & is_new_BG).int().argmax(1)]


def _hitting(points_BND: Tensor, present_BN: Tensor, pick: torch.Generator | None) -> Tensor:
    """Return a smallest set of two or more coordinates that holds a positive coordinate of each point."""
    sets_GD = _sets(points_BND.shape[2], points_BND)
    sizes_G = sets_GD.sum(1)
    hits_BNG = (points_BND > 0).to(points_BND) @ sets_GD.T.to(points_BND) > 0
    fits_BG = (hits_BNG | ~present_BN.unsqueeze(2)).all(1) & (sizes_G >= 2)
    least_B1 = sizes_G.masked_fill(~fits_BG, sets_GD.shape[1] + 1).amin(1, keepdim=True)
    smallest_BG = fits_BG & (sizes_G == least_B1)
    place_B = smallest_BG.int().argmax(1) if pick is None else random_move(smallest_BG, pick)
    return sets_GD[place_B]


def _sets(dimension: int, like: Tensor) -> Tensor:
    """Return all sets of coordinates (G, D), by size, then in the order of their bits."""
    bits_G = torch.arange(2**dimension, device=like.device)
    sets_GD = ((bits_G.unsqueeze(1) >> torch.arange(dimension, device=like.device)) & 1).bool()
    return sets_GD[sets_GD.sum(1).argsort(stable=True)]
