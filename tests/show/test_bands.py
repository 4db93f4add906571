"""The mean of runs and its band are worked out by hand, wherever the runs were logged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ludus.judge.confidence import bootstrap_interval, mean_of
from ludus.show.report.band import Band
from ludus.show.report.bands import GroupCurve, RunClocks, RunCurve, group_curve, run_curve
from ludus.show.report.files import ReportedRun
from ludus.show.report.series import Series


def curve(*points: tuple[float, float]) -> RunCurve:
    xs, ys = zip(*points, strict=True)
    return RunCurve({"env_steps": np.array(xs, float)}, np.array(ys, float), None, None)


def drawn(*curves: RunCurve, band: Band = Band.STDERR, most: int = 100) -> GroupCurve:
    return group_curve(curves, "env_steps", band, most=most)


ONE, TWO = curve((0, 1.0), (10, 3.0)), curve((0, 3.0), (10, 9.0))


def test_the_band_is_one_standard_error_of_the_mean() -> None:
    found = drawn(ONE, TWO, curve((0, 5.0), (10, 9.0)))
    assert found.xs.tolist() == [0, 10]
    assert found.ys.tolist() == [3, 7]
    # The sample deviation of 1, 3, 5 is 2; that of 3, 9, 9 is sqrt(12).
    assert found.highs == pytest.approx([3 + 2 / math.sqrt(3), 7 + 2])
    assert found.lows == pytest.approx([3 - 2 / math.sqrt(3), 7 - 2])


def test_other_bands_reach_to_the_extremes_to_the_bootstrap_bounds_or_are_none() -> None:
    found = drawn(ONE, TWO, band=Band.MINMAX)
    assert (found.lows.tolist(), found.highs.tolist()) == ([1, 3], [3, 9])  # type: ignore[union-attr]
    found = drawn(ONE, TWO, curve((0, 8.0), (10, 1.0)), band=Band.BOOTSTRAP)
    low, high = bootstrap_interval(
        [1.0, 3.0, 8.0], statistic=mean_of, confidence=0.95, num_resamples=1_000
    )
    assert (found.lows[0], found.highs[0]) == (low, high)  # type: ignore[index]
    assert drawn(ONE, TWO, band=Band.NONE).lows is None
    assert drawn(ONE).lows is None


def test_a_run_logged_at_other_places_is_interpolated() -> None:
    found = drawn(ONE, curve((0, 0.0), (5, 10.0), (10, 0.0)))
    assert found.xs.tolist() == [0, 5, 10]
    assert found.ys.tolist() == [0.5, 6, 1.5]


def test_a_mean_goes_as_far_as_all_runs_with_a_value() -> None:
    nothing = RunCurve({"env_steps": np.array([])}, np.array([]), None, None)
    found = drawn(ONE, curve((2, 0.0), (8, 0.0), (20, 5.0)), nothing)
    assert found.xs.tolist() == [2, 8, 10]
    assert len(drawn(nothing).xs) == 0


def test_single_measurements_at_different_places_have_one_mean() -> None:
    found = drawn(curve((10, 1.0)), curve((20, 3.0)))
    assert (found.xs.tolist(), found.ys.tolist()) == ([15], [2])
    assert found.highs is not None


def test_values_at_one_place_are_averaged_before_the_runs_are() -> None:
    found = drawn(curve((1, 0.0), (1, 4.0), (2, 6.0)), curve((1, 4.0), (2, 0.0)))
    assert found.ys.tolist() == [3, 3]


def test_a_curve_of_many_points_keeps_few_of_them() -> None:
    many = curve(*((x, x * 1.0) for x in range(1000)))
    assert drawn(many, many, most=50).xs.tolist()[::49] == [0, 999]


def series(*values: float, **counters: list[int]) -> Series:
    at = [dict(zip(counters, row, strict=True)) for row in zip(*counters.values(), strict=True)]
    return Series(list(at), list(values))


def no_clocks() -> RunClocks:
    return RunClocks(ReportedRun("run", {}))


def test_a_long_series_is_summed_up_by_means_of_neighbours_with_their_extremes() -> None:
    made = run_curve(
        series(1.0, 3.0, math.nan, 5.0, 9.0, opt_steps=[1, 2, 3, 4, 5]), no_clocks(), most=2
    )
    assert made.xs["opt_steps"].tolist() == [1.5, 4.5]
    assert made.ys.tolist() == [2, 7]
    assert (made.lows.tolist(), made.highs.tolist()) == ([1, 5], [3, 9])  # type: ignore[union-attr]
    short = run_curve(series(1.0, 3.0, opt_steps=[1, 2]), no_clocks(), most=2)
    assert (short.ys.tolist(), short.lows) == ([1, 3], None)


def test_an_evaluation_that_is_written_late_stands_where_it_began() -> None:
    made = run_curve(series(1.0, 3.0, 2.0, opt_steps=[1, 3, 2]), no_clocks(), most=9)
    assert made.xs["opt_steps"].tolist() == [1, 2, 3]
    assert made.ys.tolist() == [1, 2, 3]


def test_the_clock_of_a_resumed_run_goes_on_without_the_pause() -> None:
    run = ReportedRun("run", {})
    run.clocks["seconds"] = series(
        1.0, 5.0, 2.0, 4.0, epoch=[1, 1, 2, 2], opt_steps=[10, 20, 30, 40]
    )
    clocks = RunClocks(run)
    assert clocks.names == ["seconds"]
    at = [{"opt_steps": step} for step in (10, 20, 25, 30, 40, 99)]
    assert clocks.times("seconds", at).tolist() == [1, 5, 6, 7, 9, 9]
    made = run_curve(series(0.5, 0.7, opt_steps=[20, 40]), clocks, most=9)
    assert made.xs["seconds"].tolist() == [5, 9]


def test_a_process_that_first_wrote_late_is_told_from_the_one_before_by_its_session() -> None:
    run = ReportedRun("run", {})
    # The clock rises from the first process to the second, and falls from that to the third.
    run.clocks["seconds"] = series(
        1.0, 2.0, 3.0, 5.0, 4.0, opt_steps=[10, 20, 30, 40, 50], session=[0, 0, 90, 90, 180]
    )
    at = [{"opt_steps": step} for step in (10, 20, 30, 40, 50)]
    assert RunClocks(run).times("seconds", at).tolist() == [1, 2, 5, 7, 11]


def test_a_session_is_no_axis() -> None:
    made = run_curve(series(1.0, 2.0, opt_steps=[1, 2], session=[0, 9]), no_clocks(), most=9)
    assert [*made.xs] == ["opt_steps"]
    run = ReportedRun("run", {})
    run.clocks["seconds"] = series(1.0, 2.0, 1.0, opt_steps=[1, 1, 2], session=[0, 70, 140])
    assert RunClocks(run).times("seconds", [{"opt_steps": 2}]).tolist() == [4]
