"""Features and labels as float64 tensors, from arrays or tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import LudusError

Array = Tensor | np.ndarray


def matrix(values: Array, name: str) -> Tensor:
    """Return (N, D) finite float64 numbers."""
    found = as_tensor(values, name).to(torch.float64)
    if found.ndim != 2 or not found.numel():
        raise LudusError(
            f"{name} are {tuple(found.shape)}; give (examples, {name.split()[-1]}), one row at least"
        )
    # Minimum and maximum are NaN if any value is.
    if not bool(torch.stack(torch.aminmax(found)).isfinite().all()):
        raise LudusError(
            f"{name} hold a number that is not finite; look at the model that gave them"
        )
    return found


def as_tensor(values: Array, name: str) -> Tensor:
    """Return a tensor of these numbers, in their own precision."""
    if isinstance(values, Tensor):
        return values.detach()
    found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise LudusError(f"{name} are no table of numbers; give a NumPy array or a tensor")
    # A read-only array cannot be shared with torch.
    return torch.from_numpy(np.require(found, requirements=["C", "W"]))


def classes(targets: Array, count: int, device: torch.device) -> Tensor:
    """Return (N,) int64 classes of this many examples."""
    found = as_tensor(targets, "the targets").to(device)
    if tuple(found.shape) != (count,):
        raise LudusError(
            f"the targets are {tuple(found.shape)}; give one class for each of {count} examples"
        )
    whole = found.to(torch.int64)
    if not bool((whole == found).all()) or bool((whole < 0).any()):
        raise LudusError("the targets are no classes; give whole numbers of 0 or more")
    return whole
