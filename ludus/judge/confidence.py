"""Confidence interval of a mean over a few runs, by Student's t distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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
