"""Back ends of the log: what receives every record that is written."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ludus.session.record import Record


class Backend(Protocol):
    """A destination of records: a class in its own file, with a Config, registered as a logger."""

    # A class may have `check(config)`, a static method that raises LudusError before the run has a directory.
    def write(self, record: Record, /) -> None: ...
    def close(self) -> None: ...


class Event(Protocol):
    """Writes an event to events.jsonl and displays its reason."""

    def __call__(self, event: str, **details: object) -> None: ...


@runtime_checkable
class StartedBackend(Backend, Protocol):
    """A back end that is started before the run begins, and may refuse it by a LudusError."""

    def start(self, tell: Event, /) -> None: ...
