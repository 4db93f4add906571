"""Probabilities, classes and features as checked float64 tensors.

Shapes: N examples, C classes, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.active.selection.arrays import Array, classes, matrix
from ludus.core.errors import LudusError


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
            f"a target is class {int(found_N.max())}, and the model tells 0 to {num_classes - 1} apart"
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
