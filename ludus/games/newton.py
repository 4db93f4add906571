"""What a move of Hironaka's game does to its points; nothing here waits for the device.

Shapes: B games, N points, D dimension. A point that is not there is a row of -1.
"""

from __future__ import annotations

import torch
from torch import Tensor

PADDING = -1.0


def drop_dominated(points_BND: Tensor) -> Tensor:
    """Return the points without duplicates (the first is kept) and without dominated ones.

    A point is dominated when another has no coordinate greater.
    """
    present_BN = points_BND[..., 0] >= 0
    return points_BND.masked_fill((~_undominated(points_BND, present_BN)).unsqueeze(-1), PADDING)


def _undominated(points_BND: Tensor, present_BN: Tensor) -> Tensor:
    """Return (B, N) which points are there and not dominated; nothing of (B, N, N, D) is made."""
    num_points = points_BND.shape[1]
    below_BNN = present_BN.unsqueeze(1).expand(-1, num_points, -1)
    equal_BNN = below_BNN
    for column_BN in points_BND.unbind(-1):
        below_BNN = below_BNN & (column_BN.unsqueeze(1) <= column_BN.unsqueeze(2))
        equal_BNN = equal_BNN & (column_BN.unsqueeze(1) == column_BN.unsqueeze(2))
    # Of equal points the first one stays: j drops i if j is below i, and not equal or earlier.
    earlier_NN = torch.ones(num_points, num_points, dtype=torch.bool, device=points_BND.device)
    dominated_BN = (below_BNN & (~equal_BNN | earlier_NN.tril(-1))).any(2)
    return present_BN & ~dominated_BN


def shifted(points_BND: Tensor, coords_BD: Tensor, axis_B: Tensor) -> Tensor:
    """Return the points with the coordinate `axis` replaced by the sum of the coordinates named.

    A game in which the axis is not among the coordinates, or in which at most one point is left, stays.
    """
    is_axis_BD = torch.nn.functional.one_hot(axis_B.long(), points_BND.shape[-1]).bool()
    named_BD = coords_BD.bool()
    sums_BN = (points_BND * named_BD.unsqueeze(1)).sum(-1)
    present_BN = points_BND[..., 0] >= 0
    moves_B = (is_axis_BD & named_BD).any(1) & (present_BN.sum(1) > 1)
    changed_BND = is_axis_BD.unsqueeze(1) & (present_BN & moves_B.unsqueeze(1)).unsqueeze(-1)
    return torch.where(changed_BND, sums_BN.unsqueeze(-1), points_BND)


def rescaled(points_BND: Tensor) -> Tensor:
    """Return the points divided by the greatest coordinate of their game; padding stays."""
    present_BN1 = points_BND[..., :1] >= 0
    highest_B = points_BND.amax((1, 2), keepdim=True)
    return torch.where(present_BN1, points_BND / highest_B.where(highest_B > 0, 1.0), PADDING)


def repositioned(points_BND: Tensor) -> Tensor:
    """Return the points moved so that the least of each coordinate is 0; padding stays."""
    present_BN1 = points_BND[..., :1] >= 0
    lowest_B1D = points_BND.masked_fill(~present_BN1, torch.inf).amin(1, keepdim=True)
    return torch.where(present_BN1, points_BND - lowest_B1D, PADDING)


def in_order(points_BND: Tensor) -> Tensor:
    """Return the points sorted by their coordinates, the first one first, descending; padding is last."""
    for axis in reversed(range(points_BND.shape[-1])):
        order_BN = points_BND[..., axis].argsort(dim=1, descending=True, stable=True)
        points_BND = points_BND.gather(1, order_BN.unsqueeze(-1).expand_as(points_BND))
    return points_BND
