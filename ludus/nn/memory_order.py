"""The memory order of a weight's dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def memory_order(weight: Tensor) -> list[int] | None:
    """Return the dimensions of a weight in memory order, outermost first; None if it is contiguous."""
    if weight.is_contiguous():
        return None
    strides = weight.stride()
    order = sorted(range(weight.ndim), key=lambda dim: -strides[dim])
    # A weight with gaps or overlapping memory is laid out contiguously.
    return order if weight.permute(order).is_contiguous() else None


def permuted(piece: Tensor, shape: torch.Size, order: Sequence[int]) -> Tensor:
    """View a contiguous piece in a shape whose dimensions have this memory order."""
    places = [order.index(dim) for dim in range(len(order))]
    return piece.view([shape[dim] for dim in order]).permute(places)
