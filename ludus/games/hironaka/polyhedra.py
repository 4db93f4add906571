"""Public functions of Hironaka's game, which check their arguments.

The checks wait for the device, so a game itself calls the functions of `newton.py`.

Shapes: B games, N points, D dimension. A missing point is a row of -1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.games.hironaka.exact import is_vertex
from ludus.games.hironaka.host_actions import check_dimension
from ludus.games.hironaka.newton import (
    PADDING,
    drop_dominated,
    in_order,
    repositioned,
    rescaled,
    shifted,
)
from ludus.games.hironaka.vertices import judged, only


def newton_polytope(points_BND: Tensor) -> Tensor:
    """Return the points without duplicates (the first is kept) and without dominated ones.

    A point is dominated when another is at most equal in every coordinate. This is the fast filter: the
    result contains the vertices of the Newton polyhedron, which `vertices` returns alone. Raises LudusError
    for invalid points, as the functions below do; the check waits for the device.
    """
    return drop_dominated(checked(points_BND))


def vertices(points_BND: Tensor) -> Tensor:
    """Return only the vertices of the Newton polyhedron, the convex hull of all that lies above the points.

    A point is kept if no convex combination of others is at most the point in every coordinate; of equal
    points, the first is kept. Integers are decided exactly, whatever their size: points that float64 leaves
    undecided are decided in integer arithmetic on the host, a millisecond or less per point. Other numbers
    carry rounding errors, so a point counts as a vertex if it stands out by more than 8 units of rounding
    (float32: 1e-6, float64: 1e-13) of the greatest difference of coordinates.
    """
    filtered_BND = drop_dominated(checked(points_BND))
    kept_BN, doubtful_BN = judged(filtered_BND)
    for game, place in doubtful_BN.nonzero().tolist():
        rows = [[int(x) for x in row] for row in filtered_BND[game].tolist()]
        others = [row for at, row in enumerate(rows) if at != place and row[0] >= 0]
        kept_BN[game, place] = is_vertex(rows[place], others)
    return only(filtered_BND, kept_BN)


def shift(points_BND: Tensor, coords_BD: Tensor, axis_B: Tensor) -> Tensor:
    """Return the points with the coordinate `axis` replaced by the sum of the chosen coordinates.

    A game does not change if the axis is not among the coordinates, or at most one point is left.
    """
    games, _, dimension = checked(points_BND).shape
    if tuple(coords_BD.shape) != (games, dimension) or tuple(axis_B.shape) != (games,):
        raise LudusError(
            f"coordinates of shape {tuple(coords_BD.shape)} and axes of shape {tuple(axis_B.shape)} were"
            f" given; for these points give {(games, dimension)} and {(games,)}"
        )
    if ((axis_B < 0) | (axis_B >= dimension)).any():
        raise LudusError(f"an axis is not among the {dimension} coordinates, 0 to {dimension - 1}")
    return shifted(points_BND, coords_BD, axis_B)


def rescale(points_BND: Tensor) -> Tensor:
    """Return the points divided by the greatest coordinate of their game; padding is kept."""
    return rescaled(checked(points_BND))


def reposition(points_BND: Tensor) -> Tensor:
    """Return the points translated so that the least of each coordinate is 0; padding is kept."""
    return repositioned(checked(points_BND))


def features(points_BND: Tensor) -> Tensor:
    """Return the points sorted lexicographically, descending; padding is last."""
    return in_order(checked(points_BND))


def checked(points_BND: Tensor) -> Tensor:
    """Return the points; raise LudusError unless they are valid floats."""
    if points_BND.ndim != 3 or not points_BND.is_floating_point() or 0 in points_BND.shape:
        raise LudusError(
            f"{points_BND.dtype} points of shape {tuple(points_BND.shape)} were given; give floats of"
            " shape (games, points, dimension), at least one of each"
        )
    check_dimension(points_BND.shape[2])
    finite_BN, absent_BN = torch.isfinite(points_BND).all(2), (points_BND < 0).all(2)
    wrong_BN = ~finite_BN | ~(absent_BN | (points_BND >= 0).all(2))
    if wrong_BN.any():
        game, place = (int(number) for number in wrong_BN.nonzero()[0])
        raise LudusError(
            f"point {place} of game {game} is {points_BND[game, place].tolist()}; give finite coordinates"
            f" of 0 or more, or a row of {PADDING:g} for a point that is not there"
        )
    return points_BND
