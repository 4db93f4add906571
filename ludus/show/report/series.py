"""Read the numbers of a log as series, thinning a long log while it is read.

A log is read in chunks of lines. In a long one each chunk leaves, of each metric, its lowest and highest
value, one non-finite value if there is any, and its mean; the first and the last value always stay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.show.report.sampling import sampled, spread
from ludus.store.storage import Storage

LONG = 8 << 20
"""A log of more bytes than this is thinned."""
_NUM_STRETCHES = 1000
_FEWEST_BYTES = 1 << 14
NOT_SCALARS = frozenset({"text", "histogram", "image"})
_NUMBERS = {int, float}

Record = dict[str, Any]
Counters = Mapping[str, int]


@dataclass(frozen=True)
class Series:
    """One metric over a run: its values, which may be non-finite, and the counters at each."""

    counters: list[Counters] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    means: list[tuple[Counters, float]] = field(default_factory=list)
    """The mean of each chunk, if the values were thinned."""
    left_out: list[int] = field(default_factory=list)
    """Numbers of non-finite values that were thinned out, to be summed."""

    def is_same_as(self, other: Series) -> bool:
        """Return whether another series has the same values at the same counters, up to rounding."""
        return self.counters == other.counters and all(
            math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
            for a, b in zip(self.values, other.values, strict=True)
        )

    def add(self, at: Counters, value: float) -> None:
        self.counters.append(at)
        self.values.append(value)


class Gatherer:
    """Adds the numbers of a log, chunk by chunk, to series by their names."""

    def __init__(self, into: dict[str, Series], counter_names: Sequence[str], *, thins: bool):
        self._into, self._names, self._thins = into, counter_names, thins
        self._at: dict[int, Counters] = {}
        self._last: dict[str, tuple[Record, float]] = {}
        self.last_counters: dict[str, int] = {}
        """The last value of each counter."""

    def add(self, stretch: Sequence[Record]) -> None:
        """Add the numbers of some records, in their order."""
        self._at.clear()
        for name, (places, values) in _columns(stretch).items():
            if name in NOT_SCALARS:
                continue
            if name in self._names:
                places, values = self._not_counts(name, places, values)
            self._add(name, stretch, places, values)

    def _not_counts(
        self, name: str, places: Sequence[int], values: Sequence[Any]
    ) -> tuple[Sequence[int], Sequence[Any]]:
        """Store the last value of a counter; return the values that are no counts, which are a metric."""
        if {*map(type, values)} == {int} and is_count(min(values)) and is_count(max(values)):
            self.last_counters[name] = values[-1]
            return [], []
        if counts := [value for value in values if is_count(value)]:
            self.last_counters[name] = counts[-1]
        found = [(p, v) for p, v in zip(places, values, strict=True) if not is_count(v)]
        return [place for place, _ in found], [value for _, value in found]

    def _add(
        self, name: str, stretch: Sequence[Record], places: Sequence[int], values: Sequence[Any]
    ) -> None:
        if not {*map(type, values)} <= _NUMBERS or not _is_finite(values):
            known = [
                (p, x) for p, v in zip(places, values, strict=True) if (x := number(v)) is not None
            ]
            places, values = [p for p, _ in known], [x for _, x in known]
        if not values:
            return
        kept: Sequence[int] = range(len(values))
        series = self._into.setdefault(name, Series())
        if self._thins:
            kept = _kept(values, is_first=not series.values)
            self._note(series, stretch[places[len(places) // 2]], values)
            self._last[name] = stretch[places[-1]], float(values[-1])
        for at in kept:
            series.add(self._counters(stretch, places[at]), float(values[at]))

    def _counters(self, stretch: Sequence[Record], place: int) -> Counters:
        """Return the counters of a record, the same object for all of its metrics."""
        if place not in self._at:
            self._at[place] = counters_of(stretch[place], self._names)
        return self._at[place]

    def _note(self, series: Series, middle: Record, values: Sequence[float]) -> None:
        finite = values if _is_finite(values) else [one for one in values if math.isfinite(one)]
        if finite:
            # The sum of values near the largest float overflows, but they have a mean.
            is_small = _is_finite(finite)
            mean = sum(finite) / len(finite) if is_small else sum(v / len(finite) for v in finite)
            series.means.append((counters_of(middle, self._names), mean))
        if (num_gaps := len(values) - len(finite)) > 1:
            series.left_out.append(num_gaps - 1)

    def close(self) -> None:
        """Add the last value of each series, which the legend shows, if it was thinned out."""
        for name, (record, value) in self._last.items():
            series, at = self._into[name], counters_of(record, self._names)
            kept = series.values[-1]
            is_kept = kept == value or (math.isnan(kept) and math.isnan(value))
            if series.counters[-1] != at or not is_kept:
                series.add(at, value)
                series.left_out.append(0 if math.isfinite(value) else -1)
        self._last.clear()


def _columns(stretch: Sequence[Record]) -> dict[str, tuple[Sequence[int], Sequence[Any]]]:
    """Return the values of each name, with the indices of their records."""
    kinds = {*map(tuple, stretch)}
    if len(kinds) == 1:
        columns = zip(*(record.values() for record in stretch), strict=True)
        places = range(len(stretch))
        return {name: (places, values) for name, values in zip(*kinds, columns, strict=True)}
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for place, record in enumerate(stretch):
        for name, value in record.items():
            if name not in found:
                found[name] = [], []
            at, values = found[name]
            at.append(place)
            values.append(value)
    return {**found}


def _is_finite(values: Sequence[float]) -> bool:
    try:
        return math.isfinite(sum(values))
    except OverflowError:
        return False


def _kept(values: Sequence[float], *, is_first: bool) -> list[int]:
    """Return the indices of the lowest, the highest and one non-finite value of a chunk."""
    finite, kept = values, set[int]()
    if not _is_finite(values):
        gaps = [at for at, value in enumerate(values) if not math.isfinite(value)]
        finite = [value for value in values if math.isfinite(value)]
        kept.update(gaps[:1])
    if finite:
        kept.update((values.index(min(finite)), values.index(max(finite))))
    return sorted({0, *kept} if is_first else kept)


def is_count(value: object) -> bool:
    """Return whether a value can be that of a counter."""
    return type(value) is int and 0 <= value < 1 << 63


def counters_of(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """Return the counters of a record."""
    return {
        name: value for name in names if (value := record.get(name)) is not None and is_count(value)
    }


def number(value: object) -> float | None:
    """Return a JSON number, or the string for a non-finite one, as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if isinstance(value, int) and value > 0 else -math.inf


def sampled_stretches(
    storage: Storage,
    name: str,
    notes: list[str],
    *,
    every: int,
    num_stretches: int,
    count: int | None,
) -> Iterator[list[Record]]:
    """Yield objects of a long .jsonl file in chunks, about one of `every`, or `count` at even distances."""
    num_bad = 0
    with storage.local(name) as path:
        per_block = math.ceil(num_stretches / max(1, storage.size(name) >> 20))
        for lines in sampled(path, every) if count is None else spread(path, count):
            some = math.ceil(len(lines) / per_block) if count is None else len(lines)
            for begin in range(0, len(lines), max(1, some)):
                part = lines[begin : begin + some]
                records = _parsed(part)
                num_bad += len(part) - len(records)
                yield records
    _note_damaged(name, num_bad, notes)


def stretches(
    storage: Storage, name: str, notes: list[str], *, is_long: bool | None = None
) -> Iterator[list[Record]]:
    """Yield the objects of a .jsonl file in chunks; skip a torn last line, note any other bad one."""
    if not storage.exists(name):
        notes.append(f"{name} is missing.")
        return
    size = storage.size(name)
    is_long = size > LONG if is_long is None else is_long
    most = max(size // _NUM_STRETCHES, _FEWEST_BYTES) if is_long else _FEWEST_BYTES
    num_bad, num_bytes, lines = 0, 0, list[bytes]()
    for line in storage.lines(name):
        if line.strip():
            lines.append(line)
            num_bytes += len(line)
        if num_bytes >= most:
            records = _parsed(lines)
            num_bad += len(lines) - len(records)
            yield records
            lines, num_bytes = [], 0
    records = _parsed(lines)
    num_bad += len(lines) - len(records)
    yield records
    if size == 0:
        notes.append(f"{name} is empty.")
    _note_damaged(name, num_bad, notes)


def _note_damaged(name: str, num_bad: int, notes: list[str]) -> None:
    if num_bad:
        notes.append(f"{name} has {num_bad} damaged line{'s' * (num_bad > 1)}, left out here.")


def _parsed(lines: Sequence[bytes]) -> list[Record]:
    """Return the objects in lines; if each line holds one, they are parsed at once, which is far faster."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
        if len(found) == len(lines) and {*map(type, found)} <= {dict}:
            return list(found)
    except (ValueError, RecursionError):
        pass
    return [record for line in lines if isinstance(record := _object(line), dict)]


def _object(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
