"""H-score: the between-class share of the variance of features.

Shapes: N examples, D features, Y classes.
"""

from __future__ import annotations

import torch

from ludus.active.selection.arrays import Array, classes, matrix


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
