"""Two-sample tests of features: MMD, and KS by dimension.

Shapes: N and M examples of the two samples, S = N + M, D features, P permutations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.active.arrays import Array, two_samples
from ludus.core.errors import LudusError

_MOST_FOR_MEDIAN = 1000


class Compared(NamedTuple):
    """A test statistic and its p-value: the probability of one as large under the null hypothesis."""

    value: float
    p_value: float


def median_distance(all_SD: Tensor) -> float:
    """Return the median distance between two rows: the bandwidth of the RBF kernel.

    Of more than 1000 rows, 1000 evenly spaced ones are used. If all rows are equal it is 1.
    """
    if len(all_SD) > _MOST_FOR_MEDIAN:
        steps = torch.linspace(0, len(all_SD) - 1, _MOST_FOR_MEDIAN, dtype=torch.float64)
        all_SD = all_SD[steps.round().long().to(all_SD.device)]
    ordered = torch.nn.functional.pdist(all_SD).sort().values
    half = (len(ordered) - 1) // 2
    # The middle one, or the mean of the middle two: torch.median takes the lower.
    middle = float((ordered[half] + ordered[-half - 1]) / 2)
    return middle or 1.0


def mmd(first: Array, second: Array, *, bandwidth: float | None = None, chunk: int = 1024) -> float:
    """Return the unbiased estimate of the squared maximum mean discrepancy; it can be negative.

    The kernel is exp(-|x - y|^2 / (2 bandwidth^2)); None: the median distance. At most `chunk` rows of
    the kernel matrix are in memory at once.
    """
    one_ND, other_MD = two_samples(first, second)
    is_first_SP = _as_given(len(one_ND), len(other_MD), one_ND.device)
    return float(_mmds(torch.cat([one_ND, other_MD]), is_first_SP, bandwidth, chunk)[0])


def mmd_test(
    first: Array,
    second: Array,
    *,
    permutations: int,
    generator: torch.Generator,
    bandwidth: float | None = None,
    chunk: int = 1024,
) -> Compared:
    """Return the MMD and its permutation p-value: the share of permutations whose MMD is as large.

    The observed split counts as one of them, so the p-value is at least 1 / (permutations + 1).
    """
    if permutations < 1:
        raise LudusError(f"permutations is {permutations}; use 1 or more")
    one_ND, other_MD = two_samples(first, second)
    is_first_SP = [_as_given(len(one_ND), len(other_MD), one_ND.device)]
    for _ in range(permutations):
        order = torch.randperm(len(is_first_SP[0]), generator=generator)
        is_first_SP.append(is_first_SP[0][order.to(one_ND.device)])
    found_P = _mmds(torch.cat([one_ND, other_MD]), torch.cat(is_first_SP, dim=1), bandwidth, chunk)
    # Values that differ only by rounding count as equal.
    as_large = found_P >= found_P[0] - 1e-12
    return Compared(float(found_P[0]), float(as_large.double().mean()))


def _as_given(num_first: int, num_second: int, device: torch.device) -> Tensor:
    is_first_S1 = torch.zeros(num_first + num_second, 1, dtype=torch.float64, device=device)
    is_first_S1[:num_first] = 1
    return is_first_S1


def _mmds(all_SD: Tensor, is_first_SP: Tensor, bandwidth: float | None, chunk: int) -> Tensor:
    """Return (P,) MMDs, one per permutation of the same examples; the kernel is computed once."""
    width = median_distance(all_SD) if bandwidth is None else bandwidth
    if not width > 0:
        raise LudusError(f"bandwidth is {width}; use a number above 0")
    is_second_SP = 1 - is_first_SP
    within = [torch.zeros_like(is_first_SP[0]) for _ in range(2)]
    between_P = torch.zeros_like(is_first_SP[0])
    for start in range(0, len(all_SD), chunk):
        some = slice(start, start + chunk)
        kernel_cS = (torch.cdist(all_SD[some], all_SD) ** 2 / (-2 * width**2)).exp()
        to_first_cP, to_second_cP = kernel_cS @ is_first_SP, kernel_cS @ is_second_SP
        within[0] += (is_first_SP[some] * to_first_cP).sum(0)
        within[1] += (is_second_SP[some] * to_second_cP).sum(0)
        between_P += (is_first_SP[some] * to_second_cP).sum(0)
    n, m = float(is_first_SP[:, 0].sum()), float(is_second_SP[:, 0].sum())
    # The unbiased estimate excludes the diagonal: each example's kernel with itself, 1, is subtracted.
    first_P, second_P = (within[0] - n) / (n * (n - 1)), (within[1] - m) / (m * (m - 1))
    return first_P + second_P - 2 * between_P / (n * m)


def ks(first: Array, second: Array) -> Tensor:
    """Return the (D,) Kolmogorov-Smirnov statistics: the largest gap between the empirical CDFs."""
    one_ND, other_MD = two_samples(first, second)
    one_DN, other_DM = one_ND.T.sort(1).values, other_MD.T.sort(1).values
    all_DS = torch.cat([one_DN, other_DM], dim=1)
    gaps_DS = _below(one_DN, all_DS) - _below(other_DM, all_DS)
    return gaps_DS.abs().max(1).values


def _below(sorted_DN: Tensor, at_DS: Tensor) -> Tensor:
    found = torch.searchsorted(sorted_DN.contiguous(), at_DS.contiguous(), right=True)
    return found.double() / sorted_DN.shape[1]


def ks_test(first: Array, second: Array) -> Compared:
    """Return the largest KS statistic over dimensions, and its p-value times D (Bonferroni), at most 1.

    The p-value is the asymptotic one: close to the exact one for samples of equal size, as windows of a
    stream are, and above it for others. Stephens's correction would put it below, and raise false alarms.
    """
    largest = ks(first, second).max()
    num_dimensions = torch.as_tensor(first).shape[1]
    n, m = len(first), len(second)
    p_value = kolmogorov(math.sqrt(n * m / (n + m)) * float(largest))
    return Compared(float(largest), min(1.0, p_value * num_dimensions))


def kolmogorov(x: float) -> float:
    """Return the survival function of Kolmogorov's distribution at x."""
    if x < 0.2:
        # The series converges slowly there, and the value is 1 to twelve digits.
        return 1.0
    terms = [(-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101)]
    return min(1.0, max(0.0, 2 * math.fsum(terms)))
