"""Features, labels, probabilities and classes as checked float64 tensors, from arrays or tensors.

Shapes: N examples, C classes, D features.
"""

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


def log_probs(logits: Array) -> Tensor:
    """Return (N, C) float64 log probabilities of logits; log probabilities stay unchanged."""
    found = torch.as_tensor(logits).detach().to(torch.float64)
    if found.ndim != 2 or not found.numel():
        raise LudusError(
            f"the logits are {tuple(found.shape)}; give (examples, classes), one row at least"
        )
    if bool(found.isnan().any()) or bool((found == float("inf")).any()):
        raise LudusError("the logits hold NaN or infinity; look at the model that gave them")
    normalised = found.log_softmax(1)
    if bool(normalised.isnan().any()):
        raise LudusError("an example has no class of probability above 0; look at its logits")
    return normalised


def targets_in(targets: Array, log_probs_NC: Tensor) -> Tensor:
    """Return (N,) classes, each checked to be one of the C."""
    count, num_classes = log_probs_NC.shape
    found_N = classes(targets, count, log_probs_NC.device)
    if bool((found_N >= num_classes).any()):
        raise LudusError(
            f"a target is class {int(found_N.max())}, and the model distinguishes 0 to {num_classes - 1}"
        )
    return found_N


def two_samples(first: Array, second: Array) -> tuple[Tensor, Tensor]:
    """Return (N, D) and (M, D) features, checked to have at least two rows each."""
    one_ND, other_MD = matrix(first, "the features"), matrix(second, "the features")
    if one_ND.shape[1] != other_MD.shape[1]:
        raise LudusError(
            f"the samples have {one_ND.shape[1]} and {other_MD.shape[1]} features; give as many of each"
        )
    if min(len(one_ND), len(other_MD)) < 2:
        raise LudusError(
            "a sample of one example has no distribution to compare; give two at least"
        )
    return one_ND, other_MD.to(one_ND.device)
