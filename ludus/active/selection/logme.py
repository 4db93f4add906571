"""LogME: the log evidence, per example, of a Bayesian linear model from features to labels.

Shapes: N examples, D features, K targets (one a class, or one a number), R = min(N, D).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ludus.active.arrays import Array, as_tensor, classes, matrix
from ludus.core.errors import LudusError

_ITERATIONS = 11
_TOLERANCE = 1e-3
# Bounds that keep alpha and beta finite if features explain the targets wholly or not at all.
_SMALL = 1e-5
_NO_DIRECTION = 1e-10
_GREATEST = 1e140
# The search for the best ratio of alpha to beta: coarse steps over all that can matter, then sections.
_COARSE, _SECTIONS, _BEYOND = 64, 40, 20.0
_GOLDEN = (math.sqrt(5) - 1) / 2


def logme(features: Array, targets: Array, regression: bool = False) -> float:
    """Return the maximum mean log evidence of the targets, averaged over one-vs-rest targets.

    One decomposition of the features serves all targets, which are then iterated together. With more
    examples than features the numbers are those of the published method: alpha and beta begin at 1 and are
    moved at most 11 times. With no more, it is the exact evidence at its maximum; the published code leaves
    out -(D - R)/2 log(alpha) there, the share of directions without data, and so ranks by the scale of
    the features. Classes that no example has are left out, and features that are all zero explain nothing:
    the evidence is that of noise.
    """
    features_ND = matrix(features, "the features")
    device = features_ND.device
    if regression:
        given = as_tensor(targets, "the targets").to(device, torch.float64)
        is_table = given.ndim in (1, 2) and given.numel() > 0
        if not is_table or len(given) != len(features_ND) or not bool(given.isfinite().all()):
            raise LudusError(
                f"the targets are {tuple(given.shape)}; give finite numbers for each of {len(features_ND)}"
                " examples"
            )
        return float(_evidences(features_ND, Evidence(given.reshape(len(given), -1))).mean())
    classes_N = classes(targets, len(features_ND), device)
    return float(_evidences(features_ND, OneHot(classes_N)).mean())


class Evidence:
    """Targets that are numbers."""

    def __init__(self, targets_NK: Tensor) -> None:
        self._targets_NK = targets_NK
        self.squares_K = targets_NK.square().sum(0)

    def products(self, matrix_NR: Tensor) -> Tensor:
        """Return (R, K) the products of each column with each target."""
        return matrix_NR.t() @ self._targets_NK


class OneHot:
    """A one-hot target for each class that occurs, never materialised."""

    def __init__(self, classes_N: Tensor) -> None:
        # By index, so that neither names nor absent classes make a difference.
        found, self._places_N, counts = classes_N.unique(return_inverse=True, return_counts=True)
        self._count, self.squares_K = len(found), counts.to(torch.float64)

    def products(self, matrix_NR: Tensor) -> Tensor:
        """Return (R, K) the sums of each column over the examples of each class."""
        sums_KR = matrix_NR.new_zeros(self._count, matrix_NR.shape[1])
        return sums_KR.index_add_(0, self._places_N, matrix_NR).t()


def _evidences(features_ND: Tensor, targets: Evidence | OneHot) -> Tensor:
    """Return the (K,) mean log evidences, each at its own best alpha and beta."""
    count, width = features_ND.shape
    squares_R, products_RK, rest_K = _decomposed(features_ND, targets)
    if not bool((squares_R > _NO_DIRECTION**2).any()):
        beta_K = count / (targets.squares_K + _SMALL)
        noise_K = beta_K * targets.squares_K / count
        return (beta_K.log() - math.log(2 * math.pi) - noise_K) / 2
    squares_R1 = squares_R.unsqueeze(1)
    if count <= width:
        return _greatest(squares_R1, products_RK.square(), count)
    alpha_K = torch.ones_like(rest_K)
    beta_K, evidence_K = torch.ones_like(alpha_K), torch.zeros_like(alpha_K)
    is_open_K = torch.ones_like(alpha_K, dtype=torch.bool)
    for _ in range(_ITERATIONS):
        ratio_K = alpha_K / beta_K
        gamma_K = (squares_R1 / (squares_R1 + ratio_K)).sum(0)
        norm_K, residual_K = _fitted(squares_R1, products_RK, rest_K, ratio_K)
        alpha_K = torch.where(is_open_K, gamma_K / (norm_K + _SMALL), alpha_K)
        beta_K = torch.where(is_open_K, (count - gamma_K) / (residual_K + _SMALL), beta_K)
        found_K = (
            width / 2 * alpha_K.log()
            + count / 2 * (beta_K.log() - math.log(2 * math.pi))
            - torch.log(alpha_K + beta_K * squares_R1).sum(0) / 2
            - beta_K / 2 * residual_K
            - alpha_K / 2 * norm_K
        )
        evidence_K = torch.where(is_open_K, found_K / count, evidence_K)
        is_open_K = is_open_K & ((alpha_K / beta_K - ratio_K).abs() / ratio_K > _TOLERANCE)
        if not bool(is_open_K.any()):
            break
    return evidence_K


def _greatest(squares_R1: Tensor, targets_RK: Tensor, count: int) -> Tensor:
    """Return the (K,) mean log evidences at their maximum, of targets without a rest.

    Of a ratio of alpha to beta the best beta is known, so the search is along one line for each target.
    """
    is_there_R1 = squares_R1 > 0
    total_K = targets_RK.sum(0)

    def evidence(log_ratio_K: Tensor) -> Tensor:
        ratio_K = log_ratio_K.exp()
        # r / (s + r), which is 1 in a direction without data.
        shares_RK = ratio_K / (squares_R1 + ratio_K)
        unexplained_K = (targets_RK * shares_RK).sum(0).where(total_K > 0, _SMALL)
        beta_K = count / unexplained_K
        return (beta_K.log() - math.log(2 * math.pi) - 1 + shares_RK.log().sum(0) / count) / 2

    low = float(squares_R1.where(is_there_R1, torch.inf).min().log()) - _BEYOND
    high = float(squares_R1.max().log()) + _BEYOND
    step = (high - low) / _COARSE
    tried = [torch.full_like(total_K, low + step * index) for index in range(_COARSE + 1)]
    best_K = torch.stack([evidence(one) for one in tried]).argmax(0) * step + low
    low_K, high_K = best_K - step, best_K + step
    for _ in range(_SECTIONS):
        width_K = _GOLDEN * (high_K - low_K)
        left_K, right_K = high_K - width_K, low_K + width_K
        is_left_K = evidence(left_K) > evidence(right_K)
        low_K, high_K = low_K.where(is_left_K, left_K), right_K.where(is_left_K, high_K)
    return evidence((low_K + high_K) / 2)


def _decomposed(features_ND: Tensor, targets: Evidence | OneHot) -> tuple[Tensor, Tensor, Tensor]:
    """Return squared singular values, (R, K) products of left vectors with targets, and residuals."""
    count, width = features_ND.shape
    low, high = torch.aminmax(features_ND)
    if (greatest := max(-float(low), float(high))) > _GREATEST:
        raise LudusError(
            f"the features go up to {greatest:.3g}, too far to be squared; divide them"
        )
    if count > width:
        # The eigenvectors of a small square matrix are much faster to compute than singular vectors.
        squares_R, right_DR = torch.linalg.eigh(_gram(features_ND))
        # A direction that no example varies in stays, with nothing in it: it is a prior's, not evidence.
        rounding = width * torch.finfo(squares_R.dtype).eps * float(squares_R[-1])
        is_there_R = squares_R > max(rounding, _NO_DIRECTION**2)
        squares_R = squares_R.where(is_there_R, 0)
        scale_R = squares_R.where(is_there_R, torch.inf).sqrt()
        products_RK = right_DR.t() @ targets.products(features_ND) / scale_R.unsqueeze(1)
    else:
        left_NR, singular_R, _ = torch.linalg.svd(features_ND, full_matrices=False)
        rounding = width * torch.finfo(singular_R.dtype).eps * float(singular_R[0])
        singular_R = singular_R.where(singular_R > max(rounding, _NO_DIRECTION), 0)
        squares_R, products_RK = singular_R.square(), targets.products(left_NR)
    return squares_R, products_RK, targets.squares_K - products_RK.square().sum(0)


def _gram(features_ND: Tensor) -> Tensor:
    """Return (D, D) the products of all features with each other."""
    if features_ND.device.type != "cpu":
        return features_ND.t() @ features_ND
    # NumPy sees that the two are one matrix, and computes half of the products.
    array_ND = features_ND.numpy()
    return torch.from_numpy(array_ND.T @ array_ND)


def _fitted(
    squares_R1: Tensor, products_RK: Tensor, rest_K: Tensor, ratio_K: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the (K,) squared norms of the best weights and of what they leave unexplained."""
    shrunk_RK = 1 / (squares_R1 + ratio_K)
    norm_K = (squares_R1 * (products_RK * shrunk_RK).square()).sum(0)
    residual_K = (products_RK * ratio_K * shrunk_RK).square().sum(0) + rest_K
    return norm_K, residual_K
