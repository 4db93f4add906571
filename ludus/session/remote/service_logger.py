"""Logger to a service: sends each line of a run once, in the background."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from ludus.session.backend import Event
from ludus.session.record import Record
from ludus.session.remote.logged_run import LoggedRun, logged_run
from ludus.session.remote.sender import Sender, Service
from ludus.store.storage import Storage


class ServiceConfig(Protocol):
    """The keys that every such logger has."""

    @property
    def kind(self) -> str: ...

    @property
    def wait_seconds(self) -> float: ...


C = TypeVar("C", bound=ServiceConfig)


class ServiceLogger(ABC, Generic[C]):
    """A logger whose lines go to a service."""

    def __init__(self, config: C, storage: Storage) -> None:
        self._config, self._storage = config, storage
        self._sender: Sender | None = None

    @abstractmethod
    def _service(self, run: LoggedRun) -> Service:
        """Return the service's own part of a run."""

    def start(self, tell: Event) -> None:
        """Find the run in the service, or create it."""
        run = logged_run(self._storage, asked_by=self._config.kind)
        names, wait = run.counter_names, self._config.wait_seconds
        self._sender = Sender(self._service(run), self._storage, counter_names=names, wait=wait)
        self._sender.start(tell)

    def write(self, record: Record) -> None:
        """Send the record in the background."""
        if self._sender is not None:
            self._sender.write(record)

    def close(self) -> None:
        """Send the rest, how the run ended, and its best model."""
        if self._sender is not None:
            self._sender.close()
