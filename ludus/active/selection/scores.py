"""H-score, LEEP and NCE, and the score of one model on labelled rows of a pool by the name of a score.

Shapes: N examples, D features, Z source classes, Y target classes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.arrays import Array, classes, matrix
from ludus.active.scoring import Need, Scorer
from ludus.active.selection.logme import logme
from ludus.core.errors import LudusError
from ludus.show.terminal import warn

Selection = Literal["leep", "logme", "nce", "h_score"]
BY_FEATURES = ("logme", "h_score")
"""The scores of features; the others use the model's source classes."""


def score_of(
    selection: Selection, scorer: Scorer, rows: Tensor, labels: Tensor, *, is_regression: bool
) -> float:
    """Return the transferability score of the model for these labels; higher is better."""
    needs: set[Need] = {"features"} if selection in BY_FEATURES else {"probabilities"}
    seen = list(scorer.stream(rows, needs))
    if selection in BY_FEATURES:
        features = torch.cat([one.features for one in seen if one.features is not None])
        if selection == "logme":
            return logme(features, labels, regression=is_regression)
        if len(features) <= features.shape[1]:
            warn(
                f"h_score of {len(features)} labels and {features.shape[1]} features compares models by"
                " rounding alone; label more examples than there are features first, or use logme or leep"
            )
        return h_score(features, labels)
    found = torch.cat([one.log_probs for one in seen if one.log_probs is not None]).exp()
    if len(found) <= found.shape[1]:
        warn(
            f"{selection} of {len(found)} labels and {found.shape[1]} source classes: a source class that one"
            " label meets alone seems to predict it; label more examples than there are source classes first,"
            " or use logme"
        )
    return leep(found, labels) if selection == "leep" else nce(found, labels)


def h_score(features: Array, targets: Array) -> float:
    """Return trace(cov(f)^-1 cov(E[f | y])); a direction without variance contributes 0.

    It needs more examples than features: with fewer, any features explain any classes, and it is always the
    number of classes minus one.
    """
    features_ND = matrix(features, "the features")
    targets_N = classes(targets, len(features_ND), features_ND.device)
    centred_ND = features_ND - features_ND.mean(0)
    counts_Y = torch.bincount(targets_N).to(centred_ND)
    sums_YD = centred_ND.new_zeros(len(counts_Y), centred_ND.shape[1]).index_add_(
        0, targets_N, centred_ND
    )
    # The same numbers for every example of a class: between has rank below the number of classes.
    scaled_YD = sums_YD / counts_Y.clamp(min=1).sqrt().unsqueeze(1)
    covariance_DD = centred_ND.t() @ centred_ND
    inverse_DD = torch.linalg.pinv(covariance_DD, hermitian=True)
    return float((scaled_YD @ inverse_DD * scaled_YD).sum())


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


def nce(source_probabilities: Array, targets: Array) -> float:
    """Return -H(target | most likely source class), in nats; 0 if the source class determines it."""
    probs_NZ = matrix(source_probabilities, "the source probabilities")
    targets_N = classes(targets, len(probs_NZ), probs_NZ.device)
    said_NZ = torch.nn.functional.one_hot(probs_NZ.argmax(1), probs_NZ.shape[1]).to(probs_NZ)
    joint_YZ = joint(said_NZ, targets_N)
    return float(
        torch.xlogy(joint_YZ, joint_YZ).sum() - torch.xlogy(joint_YZ.sum(0), joint_YZ.sum(0)).sum()
    )
