"""Features and labels as float64 tensors, from whatever a script holds them in."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import LudusError

Array = Tensor | np.ndarray


def matrix(values: Array, name: str) -> Tensor:
    """Return (N, D) finite float64 numbers."""
    found = torch.as_tensor(values).detach().to(torch.float64)
    if found.ndim != 2 or not found.numel():
        raise LudusError(
            f"{name} are {tuple(found.shape)}; give (examples, {name.split()[-1]}), one row at least"
        )
    if not bool(found.isfinite().all()):
        raise LudusError(
            f"{name} hold a number that is not finite; look at the model that gave them"
        )
    return found


def classes(targets: Array, count: int, device: torch.device) -> Tensor:
    """Return (N,) int64 classes of this many examples."""
    found = torch.as_tensor(targets).detach().to(device)
    if tuple(found.shape) != (count,):
        raise LudusError(
            f"the targets are {tuple(found.shape)}; give one class for each of {count} examples"
        )
    whole = found.to(torch.int64)
    if not bool((whole == found).all()) or bool((whole < 0).any()):
        raise LudusError("the targets are no classes; give whole numbers of 0 or more")
    return whole
