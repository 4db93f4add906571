"""The vertices of a Newton polyhedron, found by a linear program for each point, all solved at once.

A point p is no vertex if a convex combination of the others has no coordinate greater than p's. In other
words: one player chooses a coordinate k, the other a point q, who pays q_k - p_k; p is a vertex if the
value of this matrix game is above 0. The simplex method solves it, with a fixed number of pivots, so that
nothing waits for the device.

Shapes: B games, N points, D dimension, P = B x N programs, C = N + D + 1 columns of a tableau: a point
each, a slack each, and the right-hand side.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.games.hironaka.newton import PADDING, drop_dominated

_CHUNK = 2048
"""So many games are solved at once, which bounds the memory of the tableaus."""
_OFFSET = 2.0
"""Added to all that is paid, which is from -1 to 1, so that the value is positive."""
_ROUNDS = 4
"""Pivots for each row of a tableau, twice as many as random points were seen to need; a point whose program
is not solved by then stays."""
_SMALL = 1e-11
"""What is nearer to 0 in a tableau is rounding."""


def drop_non_vertices(points_BND: Tensor) -> Tensor:
    """Return the points that are vertices; of equal points the first one stays."""
    kept = [_vertices_of(chunk) for chunk in drop_dominated(points_BND).split(_CHUNK)]
    return torch.cat(kept)


def _vertices_of(points_BND: Tensor) -> Tensor:
    present_BN = points_BND[..., 0] >= 0
    # Whole numbers are exact; others may be off by a rounding, which must not make a vertex of a point.
    is_whole_B = (points_BND == points_BND.round()).flatten(1).all(1)
    nearly_B = torch.where(is_whole_B, 1e-9, 1e-6)
    values_BN = _values(points_BND.double(), present_BN)
    is_vertex_BN = present_BN & (values_BN > nearly_B.unsqueeze(1))
    return points_BND.masked_fill(~is_vertex_BN.unsqueeze(-1), PADDING)


def _values(points_BND: Tensor, present_BN: Tensor) -> Tensor:
    """Return the value of each point's game, in units of the greatest coordinate."""
    num_games, num_points, dimension = points_BND.shape
    highest_B = points_BND.amax((1, 2)).clamp(min=1e-30)
    scaled_BND = points_BND / highest_B.view(-1, 1, 1)
    paid_BNDN = scaled_BND.mT.unsqueeze(1) - scaled_BND.unsqueeze(-1) + _OFFSET
    others_BNN = present_BN.unsqueeze(1) & ~torch.eye(
        num_points, dtype=torch.bool, device=points_BND.device
    )
    tableau = _tableau(paid_BNDN.flatten(0, 1), others_BNN.flatten(0, 1))
    for _ in range(_ROUNDS * (dimension + 1)):
        tableau = _pivoted(tableau)
    # The last entry is minus the sum of y, whose inverse is the value; a point without others has none.
    sums_P = -tableau[:, -1, -1]
    values_P = torch.where(sums_P > 0, 1.0 / sums_P, torch.inf) - _OFFSET
    return values_P.view(num_games, num_points)


def _tableau(paid_PDN: Tensor, others_PN: Tensor) -> Tensor:
    """Return the first tableau (P, D + 1, C) of: the greatest sum of y >= 0 with paid y <= 1."""
    num_programs, dimension, num_points = paid_PDN.shape
    tableau = paid_PDN.new_zeros(num_programs, dimension + 1, num_points + dimension + 1)
    tableau[:, :-1, :num_points] = paid_PDN.masked_fill(~others_PN.unsqueeze(1), 0.0)
    tableau[:, :-1, num_points:-1] = torch.eye(
        dimension, dtype=paid_PDN.dtype, device=paid_PDN.device
    )
    tableau[:, :-1, -1] = 1.0
    tableau[:, -1, :num_points] = others_PN.to(paid_PDN.dtype)
    return tableau


def _pivoted(tableau: Tensor) -> Tensor:
    """Return the tableaus after one pivot; one that is optimal stays as it is."""
    gain_P, column_P = tableau[:, -1, :-1].max(1)
    entering_PR = tableau.gather(
        2, column_P.view(-1, 1, 1).expand(-1, tableau.shape[1], 1)
    ).squeeze(2)
    body_PD, sides_PD = entering_PR[:, :-1], tableau[:, :-1, -1]
    ratios_PD = torch.where(body_PD > _SMALL, sides_PD / body_PD, torch.inf)
    least_P, row_P = ratios_PD.min(1)
    goes_on_P = (gain_P > _SMALL) & torch.isfinite(least_P)
    pivot_PC = tableau.gather(1, row_P.view(-1, 1, 1).expand(-1, 1, tableau.shape[2])).squeeze(1)
    pivot_PC = pivot_PC / body_PD.gather(1, row_P.unsqueeze(1)).where(goes_on_P.unsqueeze(1), 1.0)
    is_row_PR = torch.nn.functional.one_hot(row_P, tableau.shape[1]).bool()
    changed = torch.where(
        is_row_PR.unsqueeze(2),
        pivot_PC.unsqueeze(1),
        tableau - entering_PR.unsqueeze(2) * pivot_PC.unsqueeze(1),
    )
    return torch.where(goes_on_P.view(-1, 1, 1), changed, tableau)
