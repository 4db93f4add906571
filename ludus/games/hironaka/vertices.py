"""The vertices of a Newton polyhedron, found by a linear program for each point, all solved at once.

A point p is not a vertex if a convex combination of the others is at most p in every coordinate. In other
words: one player chooses a coordinate k, the other a point q, and pays q_k - p_k; p is a vertex if the
value of this matrix game is above 0. The simplex method solves it, with a fixed number of pivots, so that
nothing waits for the device. The players' resulting strategies bound the value, from above and from below,
whatever precision the pivots have lost.

Where all coordinates are integers, a value above 0 cannot be arbitrarily small (`_least_value`); as long as
it cannot be as small as a rounding error, the points are decided exactly.

Shapes: B games, N points, D dimension, P = B x N programs, R = D + 1 rows and C = N + D + 1 columns of a
tableau: one per point, one per slack, and the right-hand side.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ludus.games.hironaka.newton import PADDING, drop_dominated

_CHUNK = 2048
"""The number of games solved at once, which bounds the memory of the tableaus."""
_OFFSET = 2.0
"""Added to all payoffs, which are from -1 to 1, so that the value is positive."""
_ROUNDS = 4
"""Pivots for each row of a tableau, twice as many as random points were seen to need; a point whose program
is not solved by then is kept.
"""
_SMALL = 1e-11
"""Entries of a tableau closer to 0 than this are rounding errors."""
_ROUNDING = 1e-13
"""The error of a value by pivoting, in units of the greatest difference of coordinates."""


class Judged(NamedTuple):
    """Which points are vertices, and whether that is proved."""

    is_vertex: Tensor
    """(B, N)"""
    is_doubtful: Tensor
    """(B, N) whether this is a point of integers that float64 does not decide."""


def drop_non_vertices(points_BND: Tensor) -> Tensor:
    """Return the points that are vertices; of equal points the first one is kept."""
    return only(points_BND, judged(drop_dominated(points_BND)).is_vertex)


def only(points_BND: Tensor, kept_BN: Tensor) -> Tensor:
    """Return the kept points, with padding in place of the others."""
    return points_BND.masked_fill(~kept_BN.unsqueeze(-1), PADDING)


def judged(points_BND: Tensor) -> Judged:
    """Return which of these points, none of which dominates another, are vertices."""
    chunks = [_judged(chunk) for chunk in points_BND.split(_CHUNK)]
    return Judged(*map(torch.cat, zip(*chunks, strict=True)))


def _judged(points_BND: Tensor) -> Judged:
    present_BN = points_BND[..., 0] >= 0
    is_whole_B = (points_BND == points_BND.round()).flatten(1).all(1)
    lowest_B1D = points_BND.masked_fill(~present_BN.unsqueeze(-1), torch.inf).amin(1, keepdim=True)
    moved_BND = (points_BND.double() - lowest_B1D.double()).where(present_BN.unsqueeze(-1), 0.0)
    highest_B = moved_BND.amax((1, 2)).clamp(min=1e-300)
    lower_BN, upper_BN = _bounds(moved_BND / highest_B.view(-1, 1, 1), present_BN)
    least_B = _least_value(highest_B, points_BND.shape[2])
    # Non-integers carry rounding errors, which must not turn a point into a vertex.
    coarse = max(8 * torch.finfo(points_BND.dtype).eps, _ROUNDING)
    nearly_B = torch.where(is_whole_B, (least_B / 2).clamp(min=_ROUNDING), coarse)
    error = 8 * points_BND.shape[2] * torch.finfo(torch.float64).eps
    is_proved_BN = (lower_BN > error) | (upper_BN + error < least_B.unsqueeze(1))
    is_doubtful_BN = present_BN & is_whole_B.unsqueeze(1) & ~is_proved_BN
    return Judged(present_BN & (upper_BN > nearly_B.unsqueeze(1)), is_doubtful_BN)


def _least_value(highest_B: Tensor, dimension: int) -> Tensor:
    """Return a lower bound of any value above 0 of integers up to these, in units of them.

    The value is a determinant of at most D rows over the sum of its cofactors (Shapley and Snow). Integer
    matrices have a determinant of 1 or more, and Hadamard bounds each of the D^2 cofactors.
    """
    cofactors: float = dimension**2 * (dimension - 1) ** ((dimension - 1) / 2)
    return (cofactors * highest_B.clamp(min=1.0).pow(dimension)).reciprocal()


def _bounds(scaled_BND: Tensor, present_BN: Tensor) -> tuple[Tensor, Tensor]:
    """Return a lower and an upper bound of the value of each point's game; inf without other points."""
    is_self_NN = torch.eye(scaled_BND.shape[1], dtype=torch.bool, device=scaled_BND.device)
    others_PN = (present_BN.unsqueeze(1) & ~is_self_NN).flatten(0, 1)
    paid_PDN = (scaled_BND.mT.unsqueeze(1) - scaled_BND.unsqueeze(-1)).flatten(0, 1)
    if _may_be_read(scaled_BND):
        asked_P = present_BN.flatten()
        lower_P, upper_P = paid_PDN.new_full((2, len(asked_P)), torch.inf)
        lower_P[asked_P], upper_P[asked_P] = _solved(paid_PDN[asked_P], others_PN[asked_P])
    else:
        lower_P, upper_P = _solved(paid_PDN, others_PN)
    return lower_P.view_as(present_BN), upper_P.view_as(present_BN)


def _may_be_read(tensor: Tensor) -> bool:
    """Return whether reading values is free, so that work may be skipped depending on them.

    On a GPU it would be a host sync, and a tensor subclass used for tracing has no values.
    """
    return type(tensor) is Tensor and tensor.device.type == "cpu"


def _solved(paid_PDN: Tensor, others_PN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the security levels of the players of each game: a lower and an upper bound of its value."""
    dimension, num_points = paid_PDN.shape[1:]
    tableau, basis_PD = _tableau(paid_PDN + _OFFSET, others_PN)
    for _ in range(_ROUNDS * (dimension + 1)):
        if _may_be_read(tableau) and not bool((tableau[:, -1, :-1] > _SMALL).any()):
            break
        tableau, basis_PD = _pivoted(tableau, basis_PD)
    # Reduced costs of the slacks are the weights of the coordinates, right-hand sides those of the points.
    weights_PD = _shares(-tableau[:, -1, num_points:-1])
    mixed_PC = torch.zeros_like(tableau[:, 0, :-1]).scatter(1, basis_PD, tableau[:, :-1, -1])
    mixed_PN = _shares(mixed_PC[:, :num_points])
    against_PN = (weights_PD.unsqueeze(1) @ paid_PDN).squeeze(1)
    lower_P = against_PN.masked_fill(~others_PN, torch.inf).amin(1)
    upper_P = (paid_PDN @ mixed_PN.unsqueeze(2)).squeeze(2).amax(1)
    return lower_P, torch.where(others_PN.any(1), upper_P, torch.inf)


def _shares(numbers_PC: Tensor) -> Tensor:
    """Return the numbers over their sum, with those below 0, which are rounding errors, set to 0."""
    numbers_PC = numbers_PC.clamp(min=0.0)
    return numbers_PC / numbers_PC.sum(1, keepdim=True).clamp(min=1e-300)


def _tableau(paid_PDN: Tensor, others_PN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first tableau (P, R, C) of: maximize the sum of y >= 0 with paid y <= 1; and its basis."""
    num_programs, dimension, num_points = paid_PDN.shape
    tableau = paid_PDN.new_zeros(num_programs, dimension + 1, num_points + dimension + 1)
    tableau[:, :-1, :num_points] = paid_PDN.masked_fill(~others_PN.unsqueeze(1), 0.0)
    tableau[:, :-1, num_points:-1] = torch.eye(
        dimension, dtype=paid_PDN.dtype, device=paid_PDN.device
    )
    tableau[:, :-1, -1] = 1.0
    tableau[:, -1, :num_points] = others_PN.to(paid_PDN.dtype)
    slacks_D = torch.arange(num_points, num_points + dimension, device=paid_PDN.device)
    return tableau, slacks_D.expand(num_programs, dimension)


def _pivoted(tableau: Tensor, basis_PD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tableaus and bases after one pivot; an optimal one does not change."""
    gain_P, column_P = tableau[:, -1, :-1].max(1)
    entering_PR = tableau.gather(
        2, column_P.view(-1, 1, 1).expand(-1, tableau.shape[1], 1)
    ).squeeze(2)
    body_PD, sides_PD = entering_PR[:, :-1], tableau[:, :-1, -1]
    ratios_PD = torch.where(body_PD > _SMALL, sides_PD / body_PD, torch.inf)
    least_P, row_P = ratios_PD.min(1)
    goes_on_P1 = ((gain_P > _SMALL) & torch.isfinite(least_P)).unsqueeze(1)
    pivot_PC = tableau.gather(1, row_P.view(-1, 1, 1).expand(-1, 1, tableau.shape[2])).squeeze(1)
    pivot_PC = pivot_PC / body_PD.gather(1, row_P.unsqueeze(1)).where(goes_on_P1, 1.0)
    is_row_PR = row_P.unsqueeze(1) == torch.arange(tableau.shape[1], device=tableau.device)
    changed = torch.where(
        is_row_PR.unsqueeze(2),
        pivot_PC.unsqueeze(1),
        tableau - entering_PR.unsqueeze(2) * pivot_PC.unsqueeze(1),
    )
    enters_PD = is_row_PR[:, :-1] & goes_on_P1
    basis_PD = torch.where(enters_PD, column_P.unsqueeze(1), basis_PD)
    return torch.where(goes_on_P1.unsqueeze(2), changed, tableau), basis_PD
