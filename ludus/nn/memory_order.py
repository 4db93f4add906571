"""The order in which the dimensions of a weight lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def memory_order(weight: Tensor) -> list[int] | None:
    """Return the dimensions of a weight as they lie in memory, the outermost first; None: in their order."""
    if weight.is_contiguous():
        return None
    strides = weight.stride()
    order = sorted(range(weight.ndim), key=lambda dim: -strides[dim])
    # One that is spread out, or shares memory with itself, is laid out in the usual order.
    return order if weight.permute(order).is_contiguous() else None


def permuted(piece: Tensor, shape: torch.Size, order: Sequence[int]) -> Tensor:
    """Return a contiguous piece in a shape whose dimensions lie in this order."""
    places = [order.index(dim) for dim in range(len(order))]
    return piece.view([shape[dim] for dim in order]).permute(places)
