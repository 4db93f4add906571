"""Read back what a run left in its directory, forgiving what is missing or cut short."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.core.counters import SHARED
from ludus.core.errors import RunError
from ludus.show.names import may_choose_best
from ludus.store.directory import ENDINGS, found_run, read_note
from ludus.store.places import open_storage, parted
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

_LARGEST_FILE = 1 << 33
_NOT_SCALARS = {"text", "histogram", "image"}
_BEGINNINGS = ("started", "resumed")


@dataclass(frozen=True)
class Series:
    """One metric over a run: its values, and the counters at each; a value may be non-finite."""

    counters: list[Mapping[str, int]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def is_same_as(self, other: Series) -> bool:
        """Return whether another has the same values at the same counters, but for rounding."""
        return self.counters == other.counters and all(
            math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
            for a, b in zip(self.values, other.values, strict=True)
        )


@dataclass(frozen=True)
class Histogram:
    """How many values fell between each two neighbouring edges; edges has one more than counts."""

    edges: Sequence[float]
    counts: Sequence[float]


@dataclass(frozen=True)
class ReportedRun:
    """Everything a report says about one run."""

    place: str
    about: Mapping[str, Any]
    config: str = ""
    events: list[Mapping[str, Any]] = field(default_factory=list)
    metrics: dict[str, Series] = field(default_factory=dict)
    rates: dict[str, Series] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    last_counters: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What could not be read, a sentence each."""

    @property
    def is_run(self) -> bool:
        """Whether it has what every run has; else all that can be told of it families know."""
        return bool(self.about)

    @property
    def name(self) -> str:
        return str(self.about.get("name") or parted(self.place)[1])

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder of the run ('' is the run's own); none if it is not there."""
        return open_storage(self.place).names(folder)

    def read_lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a .jsonl file; of damaged lines there is a note."""
        return _read_lines(open_storage(self.place), name, self.notes)

    def read_json(self, name: str, *, limit: int = 1 << 24) -> object:
        """Return what a file of the run holds; raise LudusError where it is not there or not whole."""
        storage = open_storage(self.place)
        if not storage.exists(name):
            raise RunError(f"{name} is missing")
        return parse_json(storage.read(name, limit=limit), source=name)

    @property
    def ending(self) -> Mapping[str, Any] | None:
        """The event that says how the run ended; None while it goes on, or if it was killed."""
        event: Mapping[str, Any]
        for event in reversed(self.events):
            if event.get("event") in ENDINGS:
                return event
            if event.get("event") in _BEGINNINGS:
                return None
        return None

    @property
    def ends(self) -> Sequence[Mapping[str, Any]]:
        """The events of each time that the run came to an end of its own, the last of them included."""
        return [event for event in self.events if event.get("event") in ("finished", "stopped")]

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The last best score the run told, with its metric and model."""
        for event in reversed(self.events):
            if "best" in event:
                return mapping(event["best"]) or None
        return None

    @property
    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """The same by each further score, by the score's name."""
        for event in reversed(self.events):
            if "best" in event:
                told = mapping(event.get("more_bests"))
                return {str(name): mapping(best) for name, best in told.items() if mapping(best)}
        return {}

    @property
    def all_bests(self) -> Sequence[Mapping[str, Any]]:
        """Every best, the first score's first."""
        return [*([self.best] if self.best else []), *self.more_bests.values()]

    @property
    def has_scores(self) -> bool:
        """Whether it measured anything by which a model can be the best; a test chooses nothing."""
        return bool(self.all_bests) or any(map(may_choose_best, self.metrics))

    @property
    def counter_names(self) -> Sequence[str]:
        """Every counter of the run; all other numbers of its log are metrics."""
        own = self.about.get("counters")
        named = own if isinstance(own, list) else []
        return [*SHARED, *(name for name in named if isinstance(name, str))]

    @property
    def counters(self) -> Mapping[str, Any]:
        """How far the run came: as its end says, or else as its last metrics say."""
        told = mapping(mapping(self.ending).get("counters"))
        return {
            name: told[name] for name in self.counter_names if name in told
        } or self.last_counters

    @property
    def wall_seconds(self) -> float:
        """The time between each start and the last event of the same process, summed.

        A resume tells of damage and of a new length before it says that it has begun: by then the
        run has ended, or the process is another, so the pause before it does not count.
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


def read_run(place: str) -> ReportedRun:
    """Return what the run in this place recorded; raise RunError if it holds no run."""
    storage = found_run(place)
    record = ReportedRun(place, read_note(storage), _read_config(storage))
    if not record.config:
        record.notes.append("config.yaml is missing or empty.")
    record.events.extend(_read_lines(storage, "events.jsonl", record.notes))
    for line in _read_lines(storage, "metrics.jsonl", record.notes):
        counters = _counters(line, record.counter_names)
        record.last_counters.update(counters)
        _add_scalars(record.metrics, line, counters)
        for name, told in mapping(line.get("text")).items():
            record.texts[name] = str(told[-1] if isinstance(told, list) and told else told)
        for name, told in mapping(line.get("histogram")).items():
            _add_histogram(record, name, mapping(told))
    for line in _read_lines(storage, "timing.jsonl", record.notes):
        rates = {name: value for name, value in line.items() if name != "seconds"}
        _add_scalars(record.rates, rates, _counters(line, record.counter_names))
    return record


def number(value: object) -> float | None:
    """Return a JSON number, or the string that stands for a non-finite one, as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if isinstance(value, int) and value > 0 else -math.inf


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, and an empty one otherwise."""
    return value if isinstance(value, Mapping) else {}


def _read_config(storage: Storage) -> str:
    if not storage.exists("config.yaml"):
        return ""
    return storage.read("config.yaml").decode("utf-8", errors="replace")


def _read_lines(storage: Storage, name: str, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a .jsonl file; skip a torn last line, and note any other bad one."""
    if not storage.exists(name):
        notes.append(f"{name} is missing.")
        return
    num_lines = num_bad = 0
    for line in io.BytesIO(storage.read(name, limit=_LARGEST_FILE)):
        num_lines += 1
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        elif line.endswith(b"\n") and line.strip():
            num_bad += 1
    if num_lines == 0:
        notes.append(f"{name} is empty.")
    if num_bad:
        notes.append(f"{name} has {num_bad} damaged line{'s' * (num_bad > 1)}, left out here.")


def _counters(line: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    told = {name: line.get(name) for name in names}
    return {k: v for k, v in told.items() if type(v) is int and 0 <= v < 1 << 63}


def _add_scalars(
    into: dict[str, Series], line: Mapping[str, Any], counters: Mapping[str, int]
) -> None:
    for name, told in line.items():
        value = number(told)
        if value is None or name in counters or name in _NOT_SCALARS:
            continue
        series = into.setdefault(name, Series())
        series.counters.append(counters)
        series.values.append(value)


def _add_histogram(record: ReportedRun, name: str, told: Mapping[str, Any]) -> None:
    """Keep the newest well-formed histogram of each name."""
    edges, counts = told.get("edges"), told.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list):
        return
    numbers = [number(value) for value in (*edges, *counts)]
    finite = [value for value in numbers if value is not None and math.isfinite(value)]
    if len(finite) != len(numbers) or len(edges) != len(counts) + 1 or not counts:
        return
    parted = finite[: len(edges)], finite[len(edges) :]
    if parted[0] == sorted(parted[0]) and min(parted[1]) >= 0:
        record.histograms[name] = Histogram(*parted)
