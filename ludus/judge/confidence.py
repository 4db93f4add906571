"""Confidence intervals over a few runs: of a mean by Student's t, of any statistic by the bootstrap.

The interquartile mean and the probability of improvement are those of Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice" (2021), which the package rliable computes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ludus.core.derived_seed import derive

Resampled = NDArray[np.float64]
"""Values of shape (resamples, runs, ...)."""
Statistic = Callable[..., Any]
"""Takes one array of resampled values for each sample, and returns a value of each resample."""
NUM_RESAMPLES = 10_000
_MOST_VALUES = 1 << 22


@dataclass(frozen=True)
class MeanInterval:
    """A mean, and the interval in which the true mean lies with a given confidence."""

    mean: float
    low: float | None
    """Lower bound; None for a single value."""
    high: float | None
    """Upper bound; None for a single value."""
    count: int
    """Number of values."""

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None for a single value."""
        return None if self.high is None else self.high - self.mean


def mean_interval(values: Sequence[float], *, confidence: float) -> MeanInterval:
    """Return the mean of independent values with its interval.

    The values are taken to be normally distributed, as few seeds allow no better; a single one has no
    interval.
    """
    if not values:
        raise ValueError("no value, so no mean")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return MeanInterval(mean, None, None, 1)
    half = t_quantile(0.5 + confidence / 2, len(values) - 1) * statistics.stdev(values)
    half /= math.sqrt(len(values))
    return MeanInterval(mean, mean - half, mean + half, len(values))


def t_quantile(probability: float, degrees: int) -> float:
    """Return the value that Student's t, of whole degrees of freedom, stays below with this probability."""
    if not 0.5 <= probability < 1:
        raise ValueError(f"{probability} is not a probability from 0.5 to 1")
    low, high = 0.0, 1.0
    while _t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _t_cdf(middle, degrees) < probability else (low, middle)
    return high


def _t_cdf(t: float, degrees: int) -> float:
    """Return the probability of values below t, for t of 0 or more (Abramowitz and Stegun 26.7.3 and 4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    is_odd = degrees % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for k in range(1 + is_odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    if is_odd:
        return 0.5 + (angle + sine * total) / math.pi
    return 0.5 + sine * total / 2


def bootstrap_interval(
    *samples: ArrayLike,
    statistic: Statistic,
    confidence: float,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> tuple[Any, Any]:
    """Return the lower and the upper bound of a statistic, by the stratified percentile bootstrap.

    The first axis of a sample counts its runs: they are drawn with replacement, each sample by itself.
    Further axes, such as the points of a curve, are kept whole. The same seed gives the same bounds.
    """
    values = [np.asarray(sample, dtype=np.float64) for sample in samples]
    if not values or any(not len(one) for one in values):
        raise ValueError("a sample without values has no interval")
    random = np.random.Generator(np.random.PCG64(derive(seed, "bootstrap")))
    most = max(1, _MOST_VALUES // (math.prod(map(len, values)) * max(1, values[0][0].size)))
    found = []
    for begin in range(0, num_resamples, most):
        num = min(most, num_resamples - begin)
        drawn = [one[random.integers(len(one), size=(num, len(one)))] for one in values]
        found.append(np.asarray(statistic(*drawn)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(found), [tail, 1 - tail], axis=0)
    return (float(low), float(high)) if low.ndim == 0 else (low, high)


def mean_of(values: Resampled) -> Any:
    """Return the mean over the runs of each resample."""
    return values.mean(axis=1)


def interquartile_mean(values: Resampled) -> Any:
    """Return the mean over the middle half of the runs of each resample (IQM)."""
    cut = values.shape[1] // 4
    return np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1)


def probability_of_improvement(ours: Resampled, others: Resampled) -> Any:
    """Return how often a run of ours is above a run of the others, over all pairs; equal ones count half."""
    one, other = ours[:, :, None], others[:, None, :]
    return (np.greater(one, other) + 0.5 * np.equal(one, other)).mean(axis=(1, 2))
