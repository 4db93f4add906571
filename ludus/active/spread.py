"""Diverse rows: greedy k-center, k-means++ and k-means, without a matrix of all distances.

Shapes: N rows, L covered rows, K centres, D features, X columns of a second factor.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 4096
_MAX_ENTRIES = 2**24
"""Maximum number of distances in memory at once: 64 MiB of float32."""


def k_center(features_ND: Tensor, count: int, *, covered: Tensor | None) -> Tensor:
    """Return the indices of `count` rows, each furthest from those before it and the covered ones.

    Without covered rows the first is the one furthest from the mean. Ties go to the first.
    """
    features_ND = features_ND.float()
    count = min(count, len(features_ND))
    if not count:
        return torch.empty(0, dtype=torch.int64)
    distances = _Distances(features_ND)
    has_covered = covered is not None and len(covered) > 0
    nearest_N = distances.from_mean_N
    if has_covered:
        assert covered is not None
        nearest_N = squared_to_nearest(features_ND, covered.to(features_ND))[0]
    chosen: list[Tensor] = []
    for number in range(count):
        place = nearest_N.argmax()
        chosen.append(place)
        found_N = distances.to(place)
        is_first = number == 0 and not has_covered
        nearest_N = found_N if is_first else torch.minimum(nearest_N, found_N)
        # Below every distance: duplicates of it may still be chosen, itself never again.
        nearest_N[torch.stack(chosen)] = -1.0
    return torch.stack(chosen)


def k_means_plus_plus(
    features_ND: Tensor, count: int, *, generator: torch.Generator, factor: Tensor | None = None
) -> Tensor:
    """Return the indices of `count` rows, each sampled by its squared distance to the nearest before it.

    The first is the row of largest norm. With a `factor` (N, X) a row represents the outer product of its
    factor and its features, X * D numbers, never materialised: (a x) . (b y) = (a . b) (x . y).
    """
    features_ND = features_ND.float()
    count = min(count, len(features_ND))
    factor_NX = torch.ones_like(features_ND[:, :1]) if factor is None else factor.float()
    norms_N = features_ND.square().sum(1) * factor_NX.square().sum(1)
    nearest_N = torch.full_like(norms_N, torch.inf)
    is_free_N = torch.ones(len(norms_N), dtype=torch.bool)
    chosen: list[int] = []
    for _ in range(count):
        place = int(norms_N.argmax()) if not chosen else _drawn(nearest_N, is_free_N, generator)
        chosen.append(place)
        is_free_N[place] = False
        products_N = (features_ND @ features_ND[place]) * (factor_NX @ factor_NX[place])
        found_N = (norms_N - 2 * products_N + norms_N[place]).clamp_(min=0)
        # A remainder between equal rows is rounding, not distance.
        found_N[found_N < 1e-6 * (norms_N + norms_N[place])] = 0
        nearest_N = torch.minimum(nearest_N, found_N)
    return torch.tensor(chosen, dtype=torch.int64)


def _drawn(weights_N: Tensor, is_free_N: Tensor, generator: torch.Generator) -> int:
    """Return a free index sampled by these weights; if all are 0, the first."""
    # On the CPU and in float64, so that the sample is the same on every device with these weights.
    cumulative_N = torch.where(is_free_N, weights_N.cpu().double(), 0.0).cumsum(0)
    total = float(cumulative_N[-1])
    if not total > 0:
        return int(is_free_N.int().argmax())
    point = torch.rand(1, generator=generator, dtype=torch.float64) * total
    place = int(torch.searchsorted(cumulative_N, point, right=True).clamp_(max=len(weights_N) - 1))
    return place if is_free_N[place] else int(is_free_N.int().argmax())


def k_means(
    features_ND: Tensor, count: int, *, generator: torch.Generator, iterations: int = 20
) -> Tensor:
    """Return the (N,) cluster of each row, of `count` clusters found by Lloyd's algorithm."""
    features_ND = features_ND.float()
    # Centred, which changes no cluster, so that k-means++ starts with an outlying row.
    centred_ND = features_ND - features_ND.mean(0)
    centres_KD = centred_ND[k_means_plus_plus(centred_ND, count, generator=generator)]
    cluster_N = torch.full((len(features_ND),), -1, device=features_ND.device)
    for _ in range(iterations):
        nearest_N = squared_to_nearest(centred_ND, centres_KD)[1]
        if torch.equal(nearest_N, cluster_N):
            break
        cluster_N = nearest_N
        sizes_K = torch.bincount(cluster_N, minlength=len(centres_KD))
        sums_KD = _summed(centred_ND, cluster_N, len(centres_KD))
        # An empty cluster keeps its centre.
        means_KD = sums_KD / sizes_K.clamp(min=1).unsqueeze(1)
        centres_KD = torch.where(sizes_K.unsqueeze(1) > 0, means_KD, centres_KD)
    return cluster_N


def _summed(features_ND: Tensor, cluster_N: Tensor, count: int) -> Tensor:
    """Return the (K, D) sums of each cluster's rows, by matrix products, whose order is deterministic."""
    sums_KD = features_ND.new_zeros(count, features_ND.shape[1])
    size = _rows_at_once(count)
    for rows_BD, cluster_B in zip(features_ND.split(size), cluster_N.split(size), strict=True):
        is_of_BK = cluster_B.unsqueeze(1) == torch.arange(count, device=cluster_B.device)
        sums_KD += is_of_BK.to(rows_BD).t() @ rows_BD
    return sums_KD


class _Distances:
    """Squared distances from rows to one of them; centred, for precision."""

    def __init__(self, features_ND: Tensor) -> None:
        self._features_ND, self._mean_D = features_ND, features_ND.mean(0)
        pieces = features_ND.split(_CHUNK)
        self.from_mean_N = torch.cat([(rows - self._mean_D).square().sum(1) for rows in pieces])

    def to(self, place: Tensor) -> Tensor:
        """Return the (N,) squared distances to this row."""
        centre_D = self._features_ND[place] - self._mean_D
        products_N = self._features_ND @ centre_D - self._mean_D @ centre_D
        own = self.from_mean_N[place]
        return (self.from_mean_N - 2 * products_N + own).clamp_(min=0)


def squared_to_nearest(features_ND: Tensor, others_LD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (N,) squared distances to the nearest of other rows, and its index."""
    # Centred: numbers far from 0 would lose the precision that separates near rows.
    mean_D = others_LD.mean(0)
    others_LD = others_LD - mean_D
    norms_L = others_LD.square().sum(1)
    best, places = [], []
    for rows_BD in features_ND.split(_rows_at_once(len(others_LD))):
        centred_BD = rows_BD - mean_D
        found_BL = torch.addmm(norms_L.unsqueeze(0), centred_BD, others_LD.t(), alpha=-2)
        nearest = found_BL.min(1)
        best.append((nearest.values + centred_BD.square().sum(1)).clamp_(min=0))
        places.append(nearest.indices)
    return torch.cat(best), torch.cat(places)


def mean_distance(features_ND: Tensor, neighbours: int) -> Tensor:
    """Return the (N,) mean distances of each row to this many nearest neighbours."""
    size = len(features_ND)
    count = min(neighbours, size - 1)
    if count < 1:
        return features_ND.new_zeros(size)
    # Centred, as above.
    features_ND = features_ND - features_ND.mean(0)
    found = []
    for rows_BD in features_ND.split(_rows_at_once(size)):
        near_BK = torch.cdist(rows_BD, features_ND).topk(count + 1, dim=1, largest=False).values
        # The nearest is the row itself.
        found.append(near_BK[:, 1:].mean(1))
    return torch.cat(found)


def _rows_at_once(num_columns: int) -> int:
    return max(min(_MAX_ENTRIES // max(num_columns, 1), _CHUNK), 1)
