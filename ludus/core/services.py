"""Services of a run for its stages, parts and observers: a log, files, journals, saved models, a display.

The core defines their protocols, and defaults for a run without a directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ludus.core.errors import LudusError
from ludus.core.records import as_line

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core.run import Run

Weights = Mapping[str, Any]
CHANGED = "changed_by_fit"
"""Event: `fit` changed keys of the config; `keys` maps each to its new value."""


class Log(Protocol):
    """Collects metrics and writes them; values may stay tensors until then."""

    @property
    def written(self) -> Mapping[str, float]:
        """Scalars of the last write."""

    @property
    def written_at(self) -> int:
        """Boundary of the last write."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything to write."""

    def log(self, name: str, value: float | Tensor) -> None: ...
    def record(self, metrics: Mapping[str, Any] | None) -> None: ...
    def rate(self, name: str, value: float) -> None: ...
    def text(self, name: str, text: str) -> None: ...
    def histogram(self, name: str, values: Tensor) -> None: ...
    def image(self, name: str, image: Tensor) -> None: ...
    def write(self, run: Run) -> None: ...
    def write_past(
        self, run: Run, counters: Mapping[str, int], scalars: Mapping[str, float]
    ) -> None: ...


class NoLog:
    """A log that drops everything."""

    written: Mapping[str, float] = {}
    written_at = -1
    has_news = False

    def log(self, *given: object, **more: object) -> None: ...

    record = rate = text = histogram = image = write = write_past = log


class Grows(Protocol):
    """An append-only file."""

    def write(self, data: bytes) -> None: ...


class Files(Protocol):
    """Files of the run, by safe relative names."""

    @property
    def place(self) -> str:
        """Location of the files, as a user would write it."""

    def exists(self, name: str) -> bool: ...
    def read(self, name: str, *, limit: int = ...) -> bytes: ...
    def lines(self, name: str) -> Iterator[bytes]: ...
    def write(self, name: str, data: bytes) -> None: ...
    def append(self, name: str) -> Grows: ...


class JournalProtocol(Protocol):
    """Keyed records of effects outside the run; a resume never truncates them."""

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the last record under this key, or None."""

    def keys(self) -> list[str]: ...
    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Append a record; when this returns it is as durable as the run's files."""

    def add(self, key: str, record: Mapping[str, Any] | str) -> None:
        """Append a record, or its JSON, that `flush` makes durable with all that were added before it."""

    def flush(self) -> None:
        """Make every record durable."""

    def release(self) -> None:
        """Flush, and free what the records take in memory until they are asked for again."""


class MemoryJournal:
    """A journal for a run without a directory: it lasts as long as the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._records: dict[str, str] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        found = self._records.get(key)
        record: dict[str, Any] | None = None if found is None else json.loads(found)
        return record

    def keys(self) -> list[str]:
        return list(self._records)

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        self._records[key], _ = as_line(key, record, where=f"the journal '{self._name}'")

    def add(self, key: str, record: Mapping[str, Any] | str) -> None:
        self.put(key, json.loads(record) if isinstance(record, str) else record)

    def flush(self) -> None: ...

    def release(self) -> None: ...


class DisplayProtocol(Protocol):
    """Displays the run during the walk; a context manager."""

    @property
    def is_open(self) -> bool: ...
    def message(self, text: str) -> None: ...
    def notice(self, text: str) -> bool: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *error: object) -> None: ...


class EvaluatorHere(Protocol):
    """An evaluator in this process: it returns a score, metrics, or both."""

    def evaluate(self, judged: object, /) -> Any: ...


class EvaluatorBeside(Protocol):
    """An asynchronous evaluator, in its own process: it takes the current counters and the weights."""

    def launch(self, counters: Mapping[str, int], weights: Weights, /) -> None: ...


class Records(Protocol):
    """A script's recorder: it receives every record that is written."""

    def write(self, record: Any, /) -> None: ...


class Keep(Protocol):
    """Saves weights under a name, with a note, in the background."""

    def __call__(self, name: str, weights: Weights, note: Mapping[str, Any], /) -> None: ...


class Recall(Protocol):
    """Returns the weights saved under a name."""

    def __call__(self, name: str, /) -> Weights: ...


class Tell(Protocol):
    """Shows one line on the display; with `event`, also writes it to events.jsonl."""

    def __call__(self, text: str, *, event: str | None = None) -> None: ...


def drop_message(text: str, *, event: str | None = None) -> None:
    """Drop messages of a run without a display."""


def keep_nothing(name: str, weights: Weights, note: Mapping[str, Any], /) -> None:
    """Drop the weights of a run without a directory."""


def recall_nothing(name: str, /) -> Weights:
    """Raise LudusError: no weights were saved."""
    raise LudusError(f"{name} was not kept: this run has no directory")
