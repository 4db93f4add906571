"""The curve of a group of runs: their mean, and a band that shows how far it can be trusted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.judge.confidence import bootstrap_interval, mean_of
from ludus.show.report.band import CONFIDENCE, Band
from ludus.show.report.files import CLOCKS, ReportedRun
from ludus.show.report.scales import LARGEST
from ludus.show.report.series import Counters, Series
from ludus.store.logs import SESSION

Values = NDArray[np.float64]

_NUM_RESAMPLES = 1_000
_LONGEST = 1e12
"""Seconds beyond which a number is no time."""


@dataclass(frozen=True)
class RunCurve:
    """One metric of one run, of so few points that a page can hold them."""

    xs: Mapping[str, Values]
    """Its places on each axis: counters and clocks, non-decreasing."""
    ys: Values
    """Values, or the means of neighbouring ones."""
    lows: Values | None
    """The lowest of the values that each mean is of; None if each point is one value."""
    highs: Values | None


@dataclass(frozen=True)
class GroupCurve:
    """The mean of several runs along one axis, and its band."""

    xs: Values
    ys: Values
    lows: Values | None
    """Lower bounds; None without a band."""
    highs: Values | None


class RunClocks:
    """Maps counters to the time at which a run reached them, without pauses between its processes."""

    def __init__(self, run: ReportedRun) -> None:
        found = {name: _readings(run.clocks[name]) for name in CLOCKS if name in run.clocks}
        self._tables = {name: _table(pairs) for name, pairs in found.items() if pairs}
        self.names = list(self._tables)

    def times(self, name: str, at: Sequence[Counters]) -> Values:
        """Return the seconds at each of these counters."""
        counter, counts, seconds = self._tables[name]
        places = np.array([one.get(counter, 0) for one in at], dtype=np.float64)
        return np.interp(places, counts, seconds)


def _readings(clock: Series) -> list[tuple[Counters, float]]:
    """Return the records of a clock that can be times; people may have edited the file."""
    pairs = zip(clock.counters, clock.values, strict=True)
    return [(at, value) for at, value in pairs if 0 <= value < _LONGEST]


def _table(pairs: Sequence[tuple[Counters, float]]) -> tuple[str, Values, Values]:
    """Return the counter that moves most often in a clock's records, its values and the times."""
    names = _counters(pairs)
    distinct = {name: len({at.get(name, 0) for at, _ in pairs}) for name in names}
    counter = max(distinct, key=distinct.__getitem__, default="opt_steps")
    seconds = np.array([value for _, value in pairs])
    # A resumed process counts from zero again; older logs show it only where the time has fallen.
    processes = [at.get(SESSION) for at, _ in pairs]
    is_other = np.array([one != two for one, two in itertools.pairwise(processes)], dtype=bool)
    begins = np.flatnonzero(is_other | (np.diff(seconds) < 0)) + 1
    before = np.zeros(len(seconds))
    before[begins] = seconds[begins - 1]
    seconds = seconds + np.cumsum(before)
    counts = np.array([at.get(counter, 0) for at, _ in pairs], dtype=np.float64)
    return counter, np.maximum.accumulate(counts), seconds


def _counters(pairs: Sequence[tuple[Counters, float]]) -> list[str]:
    found = dict.fromkeys(name for at, _ in pairs for name in at)
    return [name for name in found if name != SESSION]


def run_curve(series: Series, clocks: RunClocks, *, most: int) -> RunCurve:
    """Return the curve of a series of at most so many points, each the mean of neighbouring values."""
    pairs = series.means or list(zip(series.counters, series.values, strict=True))
    pairs = [pair for pair in pairs if abs(pair[1]) <= LARGEST]
    names = _counters(pairs)
    # An asynchronous evaluation is written late, with the counters of its beginning.
    pairs.sort(key=lambda pair: tuple(pair[0].get(name, 0) for name in names))
    at = [counters for counters, _ in pairs]
    ys = np.array([value for _, value in pairs], dtype=np.float64)
    xs = {name: np.array([one.get(name, 0) for one in at], dtype=np.float64) for name in names}
    xs |= {name: np.maximum.accumulate(clocks.times(name, at)) for name in clocks.names if at}
    if len(ys) <= most:
        return RunCurve(xs, ys, None, None)
    starts = np.arange(most) * len(ys) // most
    counts = np.diff(np.append(starts, len(ys)))

    def means(values: Values) -> Values:
        found: Values = np.add.reduceat(values / np.repeat(counts, counts), starts)
        return found

    lows, highs = np.minimum.reduceat(ys, starts), np.maximum.reduceat(ys, starts)
    return RunCurve({name: means(x) for name, x in xs.items()}, means(ys), lows, highs)


def group_curve(curves: Sequence[RunCurve], axis: str, band: Band, *, most: int) -> GroupCurve:
    """Return the mean of runs along an axis, as far as all of them go; runs without a value are left out.

    Between its points a run is a straight line, so runs that log at other places can be averaged.
    """
    found = [one for one in curves if len(one.ys) and axis in one.xs]
    if not found:
        return GroupCurve(np.array([]), np.array([]), None, None)
    places = [one.xs[axis] for one in found]
    low, high = max(x[0] for x in places), min(x[-1] for x in places)
    if low > high or all(len(x) == 1 for x in places):
        # Single measurements, such as tests at the end.
        grid = np.array([np.mean([x[-1] for x in places])])
        values = np.array([[one.ys[-1]] for one in found])
    else:
        grid = np.unique(np.concatenate(places))
        grid = grid[(low <= grid) & (grid <= high)]
        if len(grid) > most:
            grid = grid[np.round(np.linspace(0, len(grid) - 1, most)).astype(int)]
        values = np.array([np.interp(grid, *_merged(one.xs[axis], one.ys)) for one in found])
    lows, highs = _bounds(values, band)
    return GroupCurve(grid, values.mean(axis=0), lows, highs)


def _merged(xs: Values, ys: Values) -> tuple[Values, Values]:
    """Return a curve in which the values at one place, such as those of one epoch, are their mean."""
    places, at, counts = np.unique(xs, return_inverse=True, return_counts=True)
    return places, np.bincount(at, weights=ys) / counts


def _bounds(values: Values, band: Band) -> tuple[Values, Values] | tuple[None, None]:
    """Return the band of some runs, of shape (runs, points); a single run has none."""
    if len(values) < 2 or band is Band.NONE:
        return None, None
    if band is Band.MINMAX:
        return values.min(axis=0), values.max(axis=0)
    if band is Band.BOOTSTRAP:
        low, high = bootstrap_interval(
            values, statistic=mean_of, confidence=CONFIDENCE, num_resamples=_NUM_RESAMPLES
        )
        return np.asarray(low), np.asarray(high)
    half = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return values.mean(axis=0) - half, values.mean(axis=0) + half
