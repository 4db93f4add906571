"""Curve of a run: the values of the compared metric, each with the counters at which it was logged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.core import counters
from ludus.core.errors import StorageError
from ludus.judge.directions import Direction
from ludus.show.report.series import number
from ludus.store.storage import Storage


@dataclass(frozen=True)
class Point:
    """One logged value."""

    counters: Mapping[str, int]
    value: float

    def step(self, counter: str) -> int:
        """Return how far a counter had come."""
        return self.counters.get(counter, 0)


def has_reached(point: Point, until: Sequence[Any]) -> bool:
    """Return whether a value was logged from this counter and number on."""
    counter, step = until
    return point.step(str(counter)) >= int(step)


@dataclass
class MetricCurve:
    """The logged values of a run, oldest first."""

    points: list[Point] = field(default_factory=list)

    def add(self, point: Point) -> None:
        """Append a value; those that a resume logs again replace the old ones."""
        if self.points and _is_before(point, self.points[-1]):
            # The run has gone back, to a checkpoint before the newest one, which was damaged.
            self.points = [old for old in self.points if _is_before(old, point)]
        self.points.append(point)

    def values(self) -> list[float]:
        """Return the values alone."""
        return [point.value for point in self.points]

    def up_to(self, num_points: int) -> MetricCurve:
        """Return the curve as it was after this many values."""
        return MetricCurve(self.points[:num_points])

    def value_of(self, take: str, mode: Direction) -> float | None:
        """Return the value of the whole run: its best, or its last; None if there is none that is finite."""
        found = [value for value in self.values() if math.isfinite(value)]
        if take == "last":
            last = self.points[-1].value if self.points else math.nan
            return last if math.isfinite(last) else None
        return None if not found else max(found) if mode == "max" else min(found)


def _is_before(one: Point, two: Point) -> bool:
    """Return whether a counter had come less far at the first point."""
    return any(one.counters.get(name, 0) < count for name, count in two.counters.items())


def read_curve(storage: Storage, metric: str, *, length: int | None = None) -> MetricCurve:
    """Return the values of a metric in metrics.jsonl, or in its first `length` bytes."""
    curve, read = MetricCurve(), 0
    for size, record in _records(storage):
        read += size
        if length is not None and read > length:
            break
        if (point := point_of(record, metric)) is not None:
            curve.points.append(point)
    return curve


def logged_names(storage: Storage) -> list[str]:
    """Return every metric that a run has logged."""
    found: dict[str, None] = {}
    for _, record in _records(storage):
        found |= dict.fromkeys(name for name, value in record.items() if number(value) is not None)
    return [name for name in found if name not in counters.known()]


def point_of(record: Mapping[str, object], metric: str) -> Point | None:
    """Return the value of a metric in a record, with the counters; None if it is not in it."""
    value = number(record.get(metric))
    if value is None:
        return None
    # Metrics are written as floats, so that whole numbers are counters.
    reached = {name: count for name, count in record.items() if type(count) is int}
    return Point(reached, value)


def _records(storage: Storage) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the records of metrics.jsonl, each with its size in bytes."""
    if not storage.exists("metrics.jsonl"):
        return
    for line in storage.lines("metrics.jsonl"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise StorageError(f"a line of {storage.place}/metrics.jsonl is damaged") from None
        if isinstance(record, dict):
            yield len(line) + 1, record
