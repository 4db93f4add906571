"""Rows that lie far apart: greedy k-centers, without a matrix of all distances.

Shapes: N rows, L rows that are covered already, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 4096


def k_center(features_ND: Tensor, count: int, *, covered: Tensor | None) -> Tensor:
    """Return the places of `count` rows, each the furthest from those before it and from the covered ones.

    Without covered rows the first is the one furthest from the mean. Of equal distances the first wins.
    """
    features_ND = features_ND.float()
    count = min(count, len(features_ND))
    norms_N = features_ND.square().sum(1)
    if covered is not None and len(covered):
        nearest_N = _to_nearest(features_ND, norms_N, covered.to(features_ND))
    else:
        nearest_N = _distances(features_ND, norms_N, features_ND.mean(0))
    is_first = covered is None or not len(covered)
    chosen = []
    for _ in range(count):
        place = nearest_N.argmax()
        chosen.append(place)
        distances_N = _distances(features_ND, norms_N, features_ND[place])
        nearest_N = distances_N if is_first else torch.minimum(nearest_N, distances_N)
        # Below every distance: rows that are equal to it may still be wanted, itself never again.
        nearest_N[torch.stack(chosen)] = -1.0
        is_first = False
    return torch.stack(chosen) if chosen else torch.empty(0, dtype=torch.int64)


def _distances(features_ND: Tensor, norms_N: Tensor, centre_D: Tensor) -> Tensor:
    """Return the (N,) squared distances to one centre."""
    products_N = features_ND @ centre_D
    return (norms_N - 2 * products_N + centre_D.square().sum()).clamp_(min=0)


def _to_nearest(features_ND: Tensor, norms_N: Tensor, covered_LD: Tensor) -> Tensor:
    """Return the (N,) squared distances to the nearest covered row, some rows at a time."""
    others_L = covered_LD.square().sum(1)
    nearest = []
    for rows_BD, norms_B in zip(features_ND.split(_CHUNK), norms_N.split(_CHUNK), strict=True):
        best_B = torch.full_like(norms_B, torch.inf)
        for part_LD, part_L in zip(covered_LD.split(_CHUNK), others_L.split(_CHUNK), strict=True):
            found_BL = torch.addmm(part_L.unsqueeze(0), rows_BD, part_LD.t(), alpha=-2)
            best_B = torch.minimum(best_B, found_BL.min(1).values)
        nearest.append((best_B + norms_B).clamp_(min=0))
    return torch.cat(nearest)
