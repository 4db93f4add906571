"""Every number finds its place on a chart, and every tick is one that people can read."""

from __future__ import annotations

import math

import pytest

from ludus.show.report.scales import counter_scale, is_noisy, thin, value_scale


def test_thinning_keeps_every_extreme_every_gap_and_both_ends() -> None:
    xs = [float(n) for n in range(10_000)]
    ys = [math.sin(n / 50) for n in range(10_000)]
    ys[777], ys[5_000], ys[6_001] = 9.0, math.nan, -9.0
    kept = thin(xs, ys, 100)
    assert len(kept) <= 302
    assert kept[0] == (0.0, ys[0])
    assert kept[-1] == (9_999.0, ys[-1])
    assert (777.0, 9.0) in kept
    assert (6_001.0, -9.0) in kept
    assert sum(math.isnan(y) for _, y in kept) == 1


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 1.0], ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0.0, 3e-4], ["0", "1e-4", "2e-4", "3e-4"]),
        ([1e-6, 1e-4, 1e-2, 1.0], ["1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]),
        ([0.0, 60_000.0], ["0", "20k", "40k", "60k"]),
        ([-2.5, 7.0], ["-2", "0", "2", "4", "6"]),
        ([1e6, 1e6 + 20], ["1,000,000", "1,000,005", "1,000,010", "1,000,015", "1,000,020"]),
    ],
)
def test_ticks_are_round_numbers_with_short_labels(values: list[float], labels: list[str]) -> None:
    assert value_scale(values).labels == labels


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0], [-3.0, -3.0], [5e-324], [5e-324, 1e300], [-1e300, 1e300], [1.0, 1.0 + 1e-15]],
)
def test_every_finite_value_has_a_place_on_its_scale(values: list[float]) -> None:
    scale = value_scale(values)
    assert all(0 <= scale.place(value) <= 1 for value in values)
    assert 1 < len(scale.ticks) < 12
    assert len(set(scale.labels)) == len(scale.labels)


@pytest.mark.parametrize("ends", [(0, 0), (7, 7), (1, 3), (0, 13_500), (10**6, 10**6 + 7)])
def test_steps_are_counted_in_whole_numbers(ends: tuple[int, int]) -> None:
    scale = counter_scale(*map(float, ends))
    assert scale.ticks
    assert all(tick == int(tick) for tick in scale.ticks)


def test_a_smooth_curve_is_not_taken_for_noise() -> None:
    assert not is_noisy([math.cos(n / 300) for n in range(1_000)])
    assert is_noisy([n % 7 + n / 100 for n in range(1_000)])
