"""LEEP: the log expected empirical prediction of a pre-trained classifier for new labels.

Shapes: N examples, Z source classes, Y target classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.active.selection.arrays import Array, classes, matrix
from ludus.core.errors import LudusError


def leep(source_probabilities: Array, targets: Array) -> float:
    """Return the mean log probability of the targets, predicted from the source classes.

    With P(y, z) = 1/n sum of p(z | x_i) over the examples of class y, it is the mean over examples of
    log sum_z P(y_i | z) p(z | x_i). A source class with zero probability contributes 0.
    """
    probs_NZ = matrix(source_probabilities, "the source probabilities")
    targets_N = classes(targets, len(probs_NZ), probs_NZ.device)
    if bool((probs_NZ < 0).any()) or bool((probs_NZ.sum(1) > 1.01).any()):
        raise LudusError(
            "the source probabilities hold one below 0, or a row whose sum is above 1; give"
            " probabilities, not logits"
        )
    return float(expected_prediction(probs_NZ, joint(probs_NZ, targets_N), targets_N))


def joint(probs_NZ: Tensor, targets_N: Tensor) -> Tensor:
    """Return the (Y, Z) joint distribution of target and source classes."""
    num_classes = int(targets_N.max()) + 1
    joint_YZ = probs_NZ.new_zeros(num_classes, probs_NZ.shape[1])
    return joint_YZ.index_add_(0, targets_N, probs_NZ) / len(probs_NZ)


def expected_prediction(probs_NZ: Tensor, joint_YZ: Tensor, targets_N: Tensor) -> Tensor:
    """Return the mean log probability of the targets."""
    marginal_Z = joint_YZ.sum(0)
    # 0 / 0: a source class that never occurs predicts nothing.
    given_YZ = torch.where(marginal_Z > 0, joint_YZ / marginal_Z.clamp(min=1e-300), 0.0)
    predicted_N = (given_YZ[targets_N] * probs_NZ).sum(1)
    return predicted_N.clamp(min=torch.finfo(torch.float64).tiny).log().mean()
