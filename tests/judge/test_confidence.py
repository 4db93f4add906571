"""The interval of a mean is that of Student's t distribution."""

from __future__ import annotations

import pytest
from scipy import stats

from ludus.judge.confidence import mean_interval, t_quantile


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
