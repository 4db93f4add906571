"""Sparkline: the course of a metric in one line of block characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ludus.judge.directions import known_direction
from ludus.show.names import most_informative

_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = "·"
_MOST_VALUES = 1024

Points = Sequence[tuple[float, float]]


class Course:
    """The values of one metric in their order; of very many, means of as many neighbours each."""

    def __init__(self) -> None:
        self._points: tuple[tuple[float, float], ...] = ()
        self._group: list[tuple[float, float]] = []
        self._size = 1

    def add(self, at: float, value: float) -> None:
        """Add the next value, and where it was found."""
        self._group.append((at, value))
        if len(self._group) < self._size:
            return
        # Another thread may be drawing, so the points are replaced, never changed.
        points, self._group = (*self._points, _middle(self._group)), []
        if len(points) == _MOST_VALUES:
            self._size *= 2
            points = tuple(_middle(points[at : at + 2]) for at in range(0, len(points), 2))
        self._points = points

    @property
    def points(self) -> Points:
        """The values, or their means, each after where it was found."""
        return self._points


class Courses:
    """The courses of the metrics by which a run is judged; before there is one, of its first metric.

    The first metric is the most informative one of those that should go up, or down.
    """

    def __init__(self, judged: Sequence[str]) -> None:
        self._judged = {name: Course() for name in judged}
        self._first: dict[str, Course] = {}
        self.axis = ""
        """The counter at whose counts the values were found."""

    def add(self, record: Mapping[str, object], counters: Mapping[str, int]) -> None:
        """Add the values of a record that was written at these counters."""
        # The first that moves, and always the same.
        self.axis = self.axis or next((name for name, count in counters.items() if count), "")
        at = counters.get(self.axis, 0)
        if not self._first:
            names = (name for name in most_informative(record) if known_direction(name))
            self._first = {name: Course() for name in list(names)[:1]}
        for name, course in (*self._first.items(), *self._judged.items()):
            value = record.get(name)
            if isinstance(value, int | float):
                course.add(at, value)

    @property
    def points(self) -> Mapping[str, Points]:
        """The points of each, by its name."""
        judged = {name: course.points for name, course in self._judged.items() if course.points}
        return judged or {name: course.points for name, course in self._first.items()}

    @property
    def values(self) -> Mapping[str, Sequence[float]]:
        """The values of each, by its name."""
        return {name: [value for _, value in points] for name, points in self.points.items()}


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the values as at most this many blocks, the lowest as the lowest block; a dot is not finite."""
    num_cells = min(len(values), max(width, 1))
    edges = [index * len(values) // num_cells for index in range(num_cells + 1)] if values else [0]
    cells = [_mean(values[start:stop]) for start, stop in itertools.pairwise(edges)]
    finite = [value for value in cells if math.isfinite(value)]
    if not finite:
        return _GAP * len(cells)
    low, high = min(finite), max(finite)
    return "".join(_block(value, low, high) if math.isfinite(value) else _GAP for value in cells)


def _block(value: float, low: float, high: float) -> str:
    # Halved, because the span of two finite numbers may be infinite.
    span = high / 2 - low / 2
    if span <= 0:
        return _BLOCKS[len(_BLOCKS) // 2 - 1]
    return _BLOCKS[min(int((value / 2 - low / 2) / span * len(_BLOCKS)), len(_BLOCKS) - 1)]


def _middle(points: Points) -> tuple[float, float]:
    return points[-1][0], _mean([value for _, value in points])


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan
