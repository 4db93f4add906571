"""Intervals are those of Student's t and of the stratified bootstrap; the statistics are those of rliable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from ludus.judge.confidence import (
    bootstrap_interval,
    interquartile_mean,
    mean_interval,
    mean_of,
    probability_of_improvement,
    t_quantile,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 30, 999])
@pytest.mark.parametrize("probability", [0.5, 0.75, 0.95, 0.975, 0.999])
def test_quantiles_are_those_of_scipy(degrees: int, probability: float) -> None:
    expected = stats.t.ppf(probability, degrees)
    assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_an_interval_of_four_values_is_worked_out_by_hand() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 4.0], confidence=0.95)
    # 3.182446 * 1.290994 / 2
    assert found.half == pytest.approx(2.054260, abs=1e-6)
    assert (found.mean, found.low, found.count) == (2.5, pytest.approx(0.445740, abs=1e-6), 4)


def test_a_single_value_has_no_interval() -> None:
    found = mean_interval([3.0], confidence=0.95)
    assert (found.mean, found.low, found.high, found.half) == (3.0, None, None, None)


def test_more_confidence_is_a_wider_interval() -> None:
    halves = [mean_interval([1.0, 2.0, 4.0], confidence=level).half for level in (0.8, 0.95)]
    assert halves[0] < halves[1]  # type: ignore[operator]


def slowly(ours: list[float], others: list[float]) -> float:
    """The probability of improvement as rliable's paper defines it, from the Mann-Whitney U statistic."""
    u = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in itertools.product(ours, others))
    assert u == stats.mannwhitneyu(ours, others).statistic
    return u / (len(ours) * len(others))


def test_the_probability_of_improvement_of_three_against_two_runs_is_worked_out_by_hand() -> None:
    ours, others = [1.0, 3.0, 5.0], [3.0, 4.0]
    # 1 beats none, 3 equals 3, 5 beats both: 2.5 of 6 pairs.
    assert slowly(ours, others) == pytest.approx(2.5 / 6)
    found = probability_of_improvement(np.array([ours]), np.array([others]))
    assert found == pytest.approx([2.5 / 6])


def test_each_resample_has_its_own_probability_of_improvement() -> None:
    random = np.random.default_rng(3)
    ours, others = random.integers(0, 5, (4, 6)) * 1.0, random.integers(0, 5, (4, 3)) * 1.0
    found = probability_of_improvement(ours, others)
    assert found == pytest.approx(
        [slowly(list(x), list(y)) for x, y in zip(ours, others, strict=True)]
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 11])
def test_the_interquartile_mean_is_the_trimmed_mean_of_rliable(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(3, count))
    expected = [stats.trim_mean(row, proportiontocut=0.25) for row in values]
    assert interquartile_mean(values) == pytest.approx(expected)


def test_the_bootstrap_of_two_values_is_worked_out_by_hand() -> None:
    # Of two values the means are 0, 5 and 10, with probabilities 1/4, 1/2 and 1/4.
    assert bootstrap_interval([0.0, 10.0], statistic=mean_of, confidence=0.95) == (0.0, 10.0)
    assert bootstrap_interval([0.0, 10.0], statistic=mean_of, confidence=0.4) == (5.0, 5.0)


def test_the_bootstrap_agrees_with_that_of_scipy_and_its_samples_are_drawn_apart() -> None:
    random = np.random.default_rng(0)
    ours, others = random.normal(0.5, 1, 12), random.normal(0, 1, 9)

    def difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x.mean(axis=1) - y.mean(axis=1)

    found = bootstrap_interval(ours, others, statistic=difference, confidence=0.9)
    expected = stats.bootstrap(
        (ours, others), lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        vectorized=True, confidence_level=0.9, method="percentile", rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert found == pytest.approx(tuple(expected), abs=0.04)


def test_the_same_seed_gives_the_same_bounds_and_another_seed_others() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 9.0]

    def bounds(seed: int) -> tuple[float, float]:
        return bootstrap_interval(
            values, statistic=mean_of, confidence=0.9, seed=seed, num_resamples=99
        )

    assert bounds(1) == bounds(1) != bounds(2)


def test_a_curve_has_an_interval_at_each_of_its_points() -> None:
    curves = np.array([[0.0, 1.0, 5.0], [2.0, 1.0, 7.0], [4.0, 1.0, 9.0]])
    low, high = bootstrap_interval(curves, statistic=mean_of, confidence=0.99)
    assert low.shape == high.shape == (3,)
    assert (low[1], high[1]) == (1.0, 1.0)
    assert low[0] + 5 == pytest.approx(low[2])
    assert low[0] < 2 < high[0]


def test_a_sample_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="has no interval"):
        bootstrap_interval([1.0], [], statistic=probability_of_improvement, confidence=0.9)
