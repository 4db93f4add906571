"""What a run offers to its stages, parts and observers: a log, files, journals, kept models, a screen.

The core only says what each can do, and what it does in a run that keeps nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ludus.core.errors import LudusError
from ludus.core.records import as_line

if TYPE_CHECKING:
    from types import TracebackType

    from torch import Tensor

    from ludus.core.run import Run

Weights = Mapping[str, Any]


class Log(Protocol):
    """Gathers metrics and writes them; numbers may be tensors until then."""

    @property
    def written(self) -> Mapping[str, float]:
        """The scalars of the last write."""

    @property
    def written_at(self) -> int:
        """The boundary of the last write."""

    @property
    def has_news(self) -> bool:
        """Whether anything waits to be written."""

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
    """The log of a run that nobody logs: it drops everything."""

    written: Mapping[str, float] = {}
    written_at = -1
    has_news = False

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


class Grows(Protocol):
    """A file that only grows."""

    def write(self, data: bytes) -> None: ...


class Files(Protocol):
    """The files of the run, by safe relative names."""

    @property
    def place(self) -> str:
        """Where they are, as a user would name it."""

    def exists(self, name: str) -> bool: ...
    def read(self, name: str, *, limit: int = ...) -> bytes: ...
    def lines(self, name: str) -> Iterator[bytes]: ...
    def write(self, name: str, data: bytes) -> None: ...
    def append(self, name: str) -> Grows: ...


class Journal(Protocol):
    """Keyed records of effects outside the run; never cut back by a resume."""

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the last record under this key, or None."""

    def keys(self) -> list[str]: ...
    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a record; it is as safe as the run's files when this returns."""


class MemoryJournal:
    """The journal of a run that has no directory: it lasts as long as the process."""

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


class Display(Protocol):
    """Shows the run while it walks; a context manager."""

    @property
    def is_open(self) -> bool: ...
    def message(self, text: str) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class EvaluatorHere(Protocol):
    """An evaluator in this process: it returns a score, metrics, or both."""

    def evaluate(self, judged: object, /) -> Any: ...


class EvaluatorBeside(Protocol):
    """An evaluator in a process of its own, given the counters of the moment and the weights."""

    def launch(self, counters: Mapping[str, int], weights: Weights, /) -> None: ...


class Records(Protocol):
    """A script's recorder: it is given every record that is written."""

    def write(self, record: Any, /) -> None: ...


class Keep(Protocol):
    """Writes weights under a name, with a note, in the background."""

    def __call__(self, name: str, weights: Weights, note: Mapping[str, Any], /) -> None: ...


class Recall(Protocol):
    """Returns the weights kept under a name."""

    def __call__(self, name: str, /) -> Weights: ...


class Tell(Protocol):
    """Shows one line to whoever watches; with `event`, writes it to events.jsonl too."""

    def __call__(self, text: str, *, event: str | None = None) -> None: ...


def tell_nobody(text: str, *, event: str | None = None) -> None:
    """Drop what is told in a run that nobody watches."""


def keep_nothing(name: str, weights: Weights, note: Mapping[str, Any], /) -> None:
    """Drop the weights of a run that has no directory."""


def recall_nothing(name: str, /) -> Weights:
    """Raise LudusError: nothing was kept."""
    raise LudusError(f"{name} was not kept: this run has no directory")
