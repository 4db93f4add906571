"""NCE: the negative conditional entropy of the labels, given the source classes of a model.

Shapes: N examples, Z source classes, Y target classes.
"""

from __future__ import annotations

import torch

from ludus.active.selection.arrays import Array, classes, matrix
from ludus.active.selection.leep import joint


def nce(source_probabilities: Array, targets: Array) -> float:
    """Return -H(target | most likely source class), in nats; 0 if the source class determines it."""
    probs_NZ = matrix(source_probabilities, "the source probabilities")
    targets_N = classes(targets, len(probs_NZ), probs_NZ.device)
    said_NZ = torch.nn.functional.one_hot(probs_NZ.argmax(1), probs_NZ.shape[1]).to(probs_NZ)
    joint_YZ = joint(said_NZ, targets_N)
    return float(
        torch.xlogy(joint_YZ, joint_YZ).sum() - torch.xlogy(joint_YZ.sum(0), joint_YZ.sum(0)).sum()
    )
