"""The effect of a move of Hironaka's game on its points; nothing here waits for the device.

Shapes: B games, N points, D dimension. A missing point is a row of -1.
"""

from __future__ import annotations

import torch
from torch import Tensor

PADDING = -1.0
LARGEST = 2.0**120
"""The sums of a move are finite as long as no coordinate is larger than this."""


def drop_dominated(points_BND: Tensor) -> Tensor:
    """Return the points without duplicates (the first is kept) and without dominated ones.

    A point is dominated when another is at most equal in every coordinate.
    """
    kept_BN = _undominated(points_BND)
    return points_BND.masked_fill(~kept_BN.unsqueeze(-1), PADDING)


def _undominated(points_BND: Tensor) -> Tensor:
    """Return (B, N) which points are present and not dominated, without a (B, N, N, D) tensor.

    The games are the last dimension here, along which a CPU vectorises.
    """
    columns_DNB = points_BND.permute(2, 1, 0).contiguous()
    present_NB = columns_DNB[0] >= 0
    # A missing point is infinite: it dominates no point.
    columns_DNB = columns_DNB.masked_fill(~present_NB, torch.inf)
    below_NNB = columns_DNB[0].unsqueeze(1) <= columns_DNB[0].unsqueeze(0)
    for column_NB in columns_DNB[1:]:
        below_NNB &= column_NB.unsqueeze(1) <= column_NB.unsqueeze(0)
    # j drops i if it is below i, unless i is below j too, so equal, and not later: the first stays.
    place_N = torch.arange(points_BND.shape[1], device=points_BND.device)
    not_later_NN1 = (place_N.unsqueeze(0) <= place_N.unsqueeze(1)).unsqueeze(-1)
    drops_NNB = below_NNB & ~(below_NNB.transpose(0, 1) & not_later_NN1)
    # The maximum of bytes is many times faster than `any`.
    dominated_NB = drops_NNB.view(torch.uint8).amax(0).bool()
    return (present_NB & ~dominated_NB).t()


def shifted(points_BND: Tensor, coords_BD: Tensor, axis_B: Tensor) -> Tensor:
    """Return the points with the coordinate `axis` replaced by the sum of the chosen coordinates.

    A game does not change if the axis is not among the coordinates, or at most one point is left.
    """
    axes_D = torch.arange(points_BND.shape[-1], device=points_BND.device)
    is_axis_BD = axis_B.unsqueeze(1) == axes_D  # one_hot would check the numbers first, a host sync
    named_BD = coords_BD.bool()
    # Summed in a fixed order, so that every device and kernel rounds alike.
    sums_BN = points_BND[..., 0] * named_BD[:, :1]
    for axis in range(1, points_BND.shape[-1]):
        sums_BN = sums_BN + points_BND[..., axis] * named_BD[:, axis : axis + 1]
    present_BN = points_BND[..., 0] >= 0
    moves_B = (is_axis_BD & named_BD).any(1) & (present_BN.sum(1) > 1)
    changed_BND = is_axis_BD.unsqueeze(1) & (present_BN & moves_B.unsqueeze(1)).unsqueeze(-1)
    return torch.where(changed_BND, sums_BN.unsqueeze(-1), points_BND)


def brought_down(points_BND: Tensor) -> Tensor:
    """Return the points divided by 2^120 in games with a coordinate above that; padding is kept.

    A division by a power of two rounds nothing, so equal sums stay equal and the game stays the same.
    """
    is_large_BN1 = (points_BND.amax((1, 2), keepdim=True) > LARGEST) & (points_BND[..., :1] >= 0)
    return torch.where(is_large_BN1, points_BND / LARGEST, points_BND)


def rescaled(points_BND: Tensor) -> Tensor:
    """Return the points divided by the greatest coordinate of their game; padding is kept."""
    present_BN1 = points_BND[..., :1] >= 0
    highest_B = points_BND.amax((1, 2), keepdim=True)
    return torch.where(present_BN1, points_BND / highest_B.where(highest_B > 0, 1.0), PADDING)


def repositioned(points_BND: Tensor) -> Tensor:
    """Return the points translated so that the least of each coordinate is 0; padding is kept."""
    present_BN1 = points_BND[..., :1] >= 0
    lowest_B1D = points_BND.masked_fill(~present_BN1, torch.inf).amin(1, keepdim=True)
    return torch.where(present_BN1, points_BND - lowest_B1D, PADDING)


def in_order(points_BND: Tensor) -> Tensor:
    """Return the points sorted lexicographically, descending; padding is last."""
    for axis in reversed(range(points_BND.shape[-1])):
        order_BN = points_BND[..., axis].argsort(dim=1, descending=True, stable=True)
        points_BND = points_BND.gather(1, order_BN.unsqueeze(-1).expand_as(points_BND))
    return points_BND
