"""LogME of 10,000 examples, 512 features and 100 classes, against the two published forms of it.

Both forms are written here from their formulas. The first iterates alpha and beta with the mean weights of
each class, in numba where that is installed; the second works on the squares of the projected targets, in
NumPy. Every score is compared with that of the second form before its time counts.

Shapes: N examples, D features.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._harness import BenchmarkError, Case

N, D, CLASSES = 10_000, 512, 100
AGREE = 1e-6
_REPEATS = 3
_Evidence = Callable[[Any, Any, Any, Any], float]


def cases() -> list[Case]:
    """Return the three systems."""
    work = f"LogME, {N:,} x {D}, {CLASSES} classes"
    return [
        Case(work, "ludus", "s", "ludus", __name__, "timed", {"form": "ludus"}),
        Case(work, "published, projected", "s", "peer", __name__, "timed", {"form": "projected"}),
        Case(work, "published, iterated", "s", "peer", __name__, "timed", {"form": "iterated"}),
    ]


def timed(form: str, n: int = N, d: int = D, classes: int = CLASSES) -> float:
    """Return the seconds of one score, the fastest of a few."""
    from ludus.active.selection import logme

    features_ND, targets_N = data(n, d, classes)
    score = {"ludus": logme, "projected": projected, "iterated": iterated}[form]
    expected = projected(features_ND, targets_N)
    found = score(features_ND, targets_N)
    if not abs(found - expected) <= AGREE:
        raise BenchmarkError(f"{form} gives {found}, and the published form {expected}")
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        score(features_ND, targets_N)
        times.append(time.perf_counter() - start)
    return min(times)


def data(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features such as a network has before its last layer, and classes that they tell of."""
    random = np.random.default_rng(0)
    targets_N = random.permutation(np.arange(n) % classes)
    centres = random.normal(size=(classes, d))
    features_ND = np.maximum(centres[targets_N] + random.normal(scale=2.0, size=(n, d)), 0.0)
    return features_ND.astype(np.float32), targets_N


def projected(features_ND: np.ndarray, targets_N: np.ndarray) -> float:
    """Return the score by the second form: one decomposition, then numbers alone, class by class."""
    features_ND = features_ND.astype(np.float64)
    count, width = features_ND.shape
    _, squares_D, right_DD = np.linalg.svd(features_ND.T @ features_ND)
    left_ND = features_ND @ right_DD.T / np.sqrt(squares_D)
    evidences = []
    for label in range(int(targets_N.max()) + 1):
        target_N = (targets_N == label).astype(np.float64)
        along_D = np.square(left_ND.T @ target_N)
        rest = float(target_N @ target_N - along_D.sum())
        alpha = beta = 1.0
        evidence = 0.0
        for _ in range(11):
            ratio = alpha / beta
            gamma = float((squares_D / (squares_D + ratio)).sum())
            norm = float((squares_D * along_D / np.square(ratio + squares_D)).sum())
            residual = float((along_D / np.square(1 + squares_D / ratio)).sum()) + rest
            alpha, beta = gamma / (norm + 1e-5), (count - gamma) / (residual + 1e-5)
            evidence = (
                width / 2 * math.log(alpha)
                + count / 2 * math.log(beta / (2 * math.pi))
                - float(np.log(alpha + beta * squares_D).sum()) / 2
                - beta / 2 * residual
                - alpha / 2 * norm
            )
            if abs(alpha / beta - ratio) / ratio <= 1e-3:
                break
        evidences.append(evidence / count)
    return float(np.mean(evidences))


def iterated(features_ND: np.ndarray, targets_N: np.ndarray) -> float:
    """Return the score by the first form: mean weights and residuals of each class, again and again."""
    features_ND = np.ascontiguousarray(features_ND.astype(np.float64))
    left_DD, squares_D, right_DD = np.linalg.svd(features_ND.T @ features_ND)
    one = _compiled()
    found = []
    for label in range(int(targets_N.max()) + 1):
        target_N = (targets_N == label).astype(np.float64)
        turned_D = right_DD @ (features_ND.T @ target_N)
        found.append(one(features_ND, target_N, (left_DD, squares_D), turned_D))
    return float(np.mean(found))


def _evidence(features_ND: Any, target_N: Any, parts: Any, turned_D: Any) -> float:
    left_DD, squares_D = parts
    count, width = features_ND.shape
    alpha = beta = 1.0
    norm = residual = 0.0
    for _ in range(11):
        ratio = alpha / beta
        gamma = (squares_D / (squares_D + ratio)).sum()
        mean_D = left_DD @ (turned_D * beta / (alpha + beta * squares_D))
        norm = (mean_D * mean_D).sum()
        off_N = target_N - features_ND @ mean_D
        residual = (off_N * off_N).sum()
        alpha = gamma / (norm + 1e-5)
        beta = (count - gamma) / (residual + 1e-5)
        if abs(alpha / beta - ratio) / ratio <= 1e-3:
            break
    evidence = (
        width / 2.0 * np.log(alpha)
        + count / 2.0 * np.log(beta / (2 * np.pi))
        - 0.5 * np.log(alpha + beta * squares_D).sum()
        - beta / 2.0 * residual
        - alpha / 2.0 * norm
    )
    return float(evidence / count)


def _compiled() -> _Evidence:
    if not _FOUND:
        try:
            import numba

            _FOUND.append(numba.njit(_evidence))
        except ImportError:
            _FOUND.append(_evidence)
    return _FOUND[0]


_FOUND: list[_Evidence] = []
