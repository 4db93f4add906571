"""Read the files of a run for a report, tolerating what is missing or truncated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.core.counters import SHARED
from ludus.core.errors import RunError
from ludus.show.names import may_choose_best
from ludus.show.report.series import (
    LONG,
    Gatherer,
    Series,
    number as number,
    sampled_stretches,
    stretches,
)
from ludus.store.directory import ENDINGS, found_run, read_note
from ludus.store.logs import SESSION
from ludus.store.places import open_storage, parted
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

_BEGINNINGS = ("started", "resumed")
CLOCKS = ("seconds", "cpu_seconds")
"""Numbers of timing.jsonl that count from the start of the process: times, not rates."""
_MOST_READ = 24 << 20
"""Bytes of the metrics of several runs that are parsed for one page."""
_NUM_TIMES = 1_000


@dataclass(frozen=True)
class Histogram:
    """Number of values between neighbouring edges; edges has one more entry than counts."""

    edges: Sequence[float]
    counts: Sequence[float]


@dataclass(frozen=True)
class ReportedRun:
    """Everything a report shows about one run."""

    place: str
    about: Mapping[str, Any]
    config: str = ""
    events: list[Mapping[str, Any]] = field(default_factory=list)
    metrics: dict[str, Series] = field(default_factory=dict)
    rates: dict[str, Series] = field(default_factory=dict)
    clocks: dict[str, Series] = field(default_factory=dict)
    """Times since the start of the process, by the names of CLOCKS."""
    texts: dict[str, str] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    last_counters: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Files and lines that could not be read, a sentence each."""

    @property
    def is_run(self) -> bool:
        """Whether it has the files of a run; else only families can report it."""
        return bool(self.about)

    @property
    def name(self) -> str:
        return str(self.about.get("name") or parted(self.place)[1])

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder of the run ('' is its root); empty if it does not exist."""
        return open_storage(self.place).names(folder)

    def read_lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a .jsonl file; damaged lines are noted."""
        for some in stretches(open_storage(self.place), name, self.notes):
            yield from some

    def read_json(self, name: str, *, limit: int = 1 << 24) -> object:
        """Return the content of a JSON file of the run; raise LudusError if it is missing or damaged."""
        storage = open_storage(self.place)
        if not storage.exists(name):
            raise RunError(f"{name} is missing")
        return parse_json(storage.read(name, limit=limit), source=name)

    @property
    def ending(self) -> Mapping[str, Any] | None:
        """The event of how the run ended; None while it is running, or if it was killed."""
        event: Mapping[str, Any]
        for event in reversed(self.events):
            if event.get("event") in ENDINGS:
                return event
            if event.get("event") in _BEGINNINGS:
                return None
        return None

    @property
    def ends(self) -> Sequence[Mapping[str, Any]]:
        """The events of each time that the run ended by itself, including the last."""
        return [event for event in self.events if event.get("event") in ("finished", "stopped")]

    @property
    def _last_bests(self) -> Mapping[str, Any]:
        return next((event for event in reversed(self.events) if "best" in event), {})

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The last best score that the run recorded, with its metric and model."""
        return mapping(self._last_bests.get("best")) or None

    @property
    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """The same for each further score, by the score's name."""
        more = mapping(self._last_bests.get("more_bests"))
        return {str(name): mapping(best) for name, best in more.items() if mapping(best)}

    @property
    def all_bests(self) -> Sequence[Mapping[str, Any]]:
        """Every best model, that of the first score first."""
        return [*([self.best] if self.best else []), *self.more_bests.values()]

    @property
    def runners_up(self) -> Sequence[Mapping[str, Any]]:
        """The models kept besides the best ones, the best first."""
        models = self._last_bests.get("runners_up")
        return [mapping(one) for one in models] if isinstance(models, list) else []

    @property
    def has_scores(self) -> bool:
        """Whether it measured anything by which a best model can be chosen; tests do not count."""
        return bool(self.all_bests) or any(map(may_choose_best, self.metrics))

    @property
    def counter_names(self) -> Sequence[str]:
        """Every counter of the run; all other numbers of its log are metrics."""
        own = self.about.get("counters")
        named = own if isinstance(own, list) else []
        return [*SHARED, *(name for name in named if isinstance(name, str))]

    @property
    def counters(self) -> Mapping[str, Any]:
        """The last counters of the run, from its end or else from its last metrics."""
        counters = mapping(mapping(self.ending).get("counters"))
        return {
            name: counters[name] for name in self.counter_names if name in counters
        } or self.last_counters

    @property
    def wall_seconds(self) -> float:
        """Sum of the times between each start and the last event of the same process.

        A resume may report damage and a new length before its own event: by then the run has ended or the
        process is another, so the pause before it does not count.
        """
        total, began, last = 0.0, math.nan, math.nan
        process: object = None
        for event in self.events:
            time = number(event.get("time"))
            if time is None or not math.isfinite(time):
                continue
            if event.get("event") in _BEGINNINGS:
                total += last - began if last >= began else 0.0
                began, last, process = time, time, event.get("pid")
            elif event.get("pid", process) == process:
                last = time
            if event.get("event") in ENDINGS:
                process = _NOBODY
        return total + (last - began if last >= began else 0.0)


_NOBODY = object()


@dataclass(frozen=True)
class Reading:
    """How much of the logs is read: on a page of many runs, less of each."""

    long: int | None = None
    """A log of more bytes is thinned while it is read; None: `LONG`."""
    every: int = 1
    """Of a long log, about one record in so many is read; those of rare kinds all are."""
    num_stretches: int = 400
    """Parts of such a log that are summed up, each as one point of a curve."""

    @classmethod
    def of(cls, places: Sequence[str]) -> Reading:
        """Return how to read these runs for one page."""
        if len(places) < 2:
            return cls()
        storages = [open_storage(place) for place in places]
        name = "metrics.jsonl"
        size = sum(one.size(name) for one in storages if one.exists(name))
        long = max(LONG // len(places), LONG // 16)
        stretches = min(cls.num_stretches, max(120, 6_000 // len(places)))
        return cls(long, max(1, math.ceil(size / _MOST_READ)), stretches)


def read_summary(place: str) -> ReportedRun:
    """Return what a run records of itself, without its logs; raise RunError if there is no run."""
    storage = found_run(place)
    record = ReportedRun(place, read_note(storage), _read_config(storage))
    if not record.config:
        record.notes.append("config.yaml is missing or empty.")
    for events in stretches(storage, "events.jsonl", record.notes):
        record.events.extend(events)
    return record


def read_run(place: str, reading: Reading | None = None) -> ReportedRun:
    """Return the records of the run at this location; raise RunError if there is none."""
    record, storage = read_summary(place), open_storage(place)
    reading = reading or Reading()
    _read_numbers(storage, "metrics.jsonl", record, record.metrics, reading)
    _read_numbers(storage, "timing.jsonl", record, record.rates, reading)
    for name in CLOCKS:
        if name in record.rates:
            record.clocks[name] = record.rates.pop(name)
    return record


def _read_numbers(
    storage: Storage, name: str, record: ReportedRun, into: dict[str, Series], reading: Reading
) -> None:
    """Add the numbers of a log, thinned if it is long, and the other content of its records."""
    long = LONG if reading.long is None else reading.long
    is_long = storage.exists(name) and storage.size(name) > long
    is_sampled = is_long and reading.every > 1
    is_timing = into is record.rates
    thins = is_long and not (is_sampled and is_timing)
    counters = [*record.counter_names, *[SESSION] * is_timing]
    gatherer, num_lines = Gatherer(into, counters, thins=thins), 0
    if is_sampled:
        source = sampled_stretches(
            storage,
            name,
            record.notes,
            every=reading.every,
            num_stretches=reading.num_stretches,
            # The times of many places are enough for an axis, and their extremes say nothing.
            count=_NUM_TIMES if is_timing else None,
        )
    else:
        source = stretches(storage, name, record.notes, is_long=is_long)
    for some in source:
        num_lines += len(some)
        gatherer.add(some)
        if not is_timing:
            _note_rest(record, some)
    gatherer.close()
    if not is_timing:
        last = gatherer.last_counters
        record.last_counters.update({n: last[n] for n in record.counter_names if n in last})
    if is_sampled:
        record.notes.append(
            f"{name} is long: of its frequent records about one in {reading.every:,} was read for this page;"
            " a page of this run alone reads all."
            if not is_timing
            else f"{name} is long: it was read at {num_lines:,} places."
        )
    elif is_long:
        record.notes.append(
            f"{name} has {num_lines:,} records: its curves show the lowest and the highest value, and"
            " the mean, of every thousandth part."
        )


def _note_rest(record: ReportedRun, some: Sequence[Mapping[str, Any]]) -> None:
    """Keep the newest text and histogram of each name."""
    for line in some:
        if "text" in line:
            for name, value in mapping(line["text"]).items():
                record.texts[name] = str(value[-1] if isinstance(value, list) and value else value)
        if "histogram" in line:
            for name, value in mapping(line["histogram"]).items():
                _add_histogram(record, name, mapping(value))


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, and an empty one otherwise."""
    return value if isinstance(value, Mapping) else {}


def _read_config(storage: Storage) -> str:
    if not storage.exists("config.yaml"):
        return ""
    return storage.read("config.yaml").decode("utf-8", errors="replace")


def _add_histogram(record: ReportedRun, name: str, histogram: Mapping[str, Any]) -> None:
    """Keep the newest well-formed histogram of each name."""
    edges, counts = histogram.get("edges"), histogram.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list):
        return
    numbers = [number(value) for value in (*edges, *counts)]
    finite = [value for value in numbers if value is not None and math.isfinite(value)]
    if len(finite) != len(numbers) or len(edges) != len(counts) + 1 or not counts:
        return
    parted = finite[: len(edges)], finite[len(edges) :]
    if parted[0] == sorted(parted[0]) and min(parted[1]) >= 0:
        record.histograms[name] = Histogram(*parted)
