"""Pool of worker processes, each with one run at a time; one that dies or hangs is replaced."""

from __future__ import annotations

import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import Field

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.core.errors import ConfigError, LudusError
from ludus.process.child import ChildDied, ChildFailed, ChildHung
from ludus.process.frames import Message
from ludus.sweep.curve import Point
from ludus.sweep.engine import MakeTrainer, RunEnd, RunListener, Task

_START_SECONDS = 300.0
_MAX_DEAD_STARTS = 3


class WorkerLost(ChildDied):
    """The machine or the process around a worker is gone: its run is not to blame, and goes on elsewhere."""


class WorkerConnection(Protocol):
    """Connection with a process that runs `ludus.sweep.worker`; a `Child` is one."""

    def send(self, header: dict[str, Any]) -> None: ...
    def receive(self) -> Message: ...
    def wait(self, timeout: float) -> bool:
        """Return whether there is something to receive within `timeout` seconds."""

    def give_up(self, timeout: float) -> ChildHung:
        """Kill the process, which has said nothing for so long."""

    def kill(self) -> None: ...


class PoolConfig(StrictConfig):
    """Options of a pool."""

    kind: str
    """Where the processes are."""
    workers: Annotated[int, Field(ge=1, le=512)]
    """Number of processes, each with one run at a time and one thread."""
    hang_seconds: PositiveFloat | None
    """A run that comes to no boundary for so long is killed, and has failed; null: no limit."""
    memory_gb: PositiveFloat | None
    """Memory that a process may take; a run that needs more has failed; null: no limit. On Linux alone."""


@dataclass
class SweepWorker:
    """One process and what it is doing."""

    connection: WorkerConnection
    heard: float
    """When it last said anything."""
    is_ready: bool = False
    """Whether it has imported everything."""
    task: Task | None = None


class WorkerPool(ABC):
    """An engine whose runs are in other processes; a kind says where these are started."""

    is_here = False

    def __init__(self, config: PoolConfig, *, make_trainer: MakeTrainer | None = None) -> None:
        if make_trainer is not None:
            raise ConfigError(
                f"make_trainer_fn stays in this process, and 'engine.kind' is {config.kind}: set it to"
                " inline, or register the trainer in a module and load it with ludus.load_plugin"
            )
        if config.memory_gb is not None and sys.platform != "linux":
            raise ConfigError(
                f"'engine.memory_gb' is {config.memory_gb:g}, and only Linux limits the memory of a process,"
                f" not {sys.platform}; set it to null"
            )
        self._pool_config = config
        self._workers: list[SweepWorker] = []
        self._waiting: list[Task] = []
        self._is_pausing = False
        self._num_dead_starts = 0

    @abstractmethod
    def _connect(self, number: int) -> WorkerConnection:
        """Start a worker process."""

    @abstractmethod
    def _ready_among(
        self, connections: Sequence[WorkerConnection], seconds: float
    ) -> Sequence[WorkerConnection]:
        """Return those that have something to receive, waiting for the first."""

    @property
    def capacity(self) -> int:
        return int(self._pool_config.workers)

    def open(self, listener: RunListener, directory: str) -> None:
        """Start all workers, which import what they need while the first points are chosen."""
        self._listener = listener
        self._workers = [self._started(number) for number in range(self._pool_config.workers)]

    def _started(self, number: int) -> SweepWorker:
        connection = self._connect(number)
        connection.send({"do": "greet", "memory_gb": self._pool_config.memory_gb})
        return SweepWorker(connection, time.monotonic())

    def launch(self, task: Task) -> None:
        self._waiting.append(task)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give tasks to workers that have imported everything and are idle."""
        for worker in list(self._workers):
            if not self._waiting:
                return
            if worker.task is not None or not worker.is_ready:
                continue
            worker.task, worker.heard = self._waiting.pop(0), time.monotonic()
            try:
                worker.connection.send({"do": "run", "task": worker.task.as_json()})
            except (ChildDied, ChildHung) as error:
                self._lose(worker, error)

    def work(self, seconds: float) -> None:
        if self._is_pausing:
            while self._waiting:
                self._listener.ended(self._waiting.pop(0), RunEnd("interrupted", None, {}))
        ready = self._ready_among([one.connection for one in self._workers], seconds)
        for worker in list(self._workers):
            if any(worker.connection is one for one in ready):
                self._hear(worker)
        for worker in list(self._workers):
            self._end_hung(worker)
        self._hand_out()

    def _hear(self, worker: SweepWorker) -> None:
        try:
            header, _ = worker.connection.receive()
        except ChildFailed as error:
            # Nothing raises there but what prevents its start.
            raise LudusError(f"a worker of the sweep cannot be started: {error}") from error
        except (ChildDied, ChildHung) as error:
            self._lose(worker, error)
            return
        worker.heard = time.monotonic()
        task = worker.task
        if "is_ready" in header:
            worker.is_ready, self._num_dead_starts = True, 0
        elif "end" in header and task is not None:
            worker.task, end = None, RunEnd(**header["end"])
            if end.is_spent:
                self._replace(worker)
            self._listener.ended(task, end)
        elif "logged" in header and task is not None:
            reason = self._listener.logged(task, Point(**header["logged"]))
            if task.waits:
                with contextlib.suppress(ChildDied, ChildHung):
                    worker.connection.send({"do": "answer", "reason": reason})

    def _silence_allowed(self, worker: SweepWorker) -> float | None:
        """Return for how many seconds a worker may say nothing; None if there is no limit."""
        if not worker.is_ready:
            return _START_SECONDS
        return None if worker.task is None else self._pool_config.hang_seconds

    def _end_hung(self, worker: SweepWorker) -> None:
        """Kill a worker that has said nothing for too long."""
        limit = self._silence_allowed(worker)
        silent = time.monotonic() - worker.heard
        # A machine that slept wakes up late: what was said meanwhile counts.
        if limit is None or silent < limit or worker.connection.wait(0):
            return
        worker.connection.give_up(limit)
        self._lose(worker, ChildHung(f"hung: no boundary for {limit:g} seconds"))

    def _lose(self, worker: SweepWorker, error: ChildDied | ChildHung) -> None:
        """Replace a dead worker; its run has failed, unless what was around the worker is gone too."""
        task, why = worker.task, str(error)
        if not worker.is_ready:
            self._num_dead_starts += 1
            if self._num_dead_starts >= _MAX_DEAD_STARTS:
                raise LudusError(f"workers of the sweep die before they begin: {why}")
        self._replace(worker)
        if task is not None:
            first = why.partition("\n")[0].removesuffix("; it printed last:")
            is_lost = isinstance(error, WorkerLost)
            self._listener.ended(task, RunEnd("interrupted" if is_lost else "failed", first, {}))

    def _replace(self, worker: SweepWorker) -> None:
        number = self._workers.index(worker)
        worker.connection.kill()
        self._workers[number] = self._started(number)

    def pause(self) -> None:
        self._is_pausing = True
        for worker in self._workers:
            if worker.task is not None:
                with contextlib.suppress(ChildDied, ChildHung):
                    worker.connection.send({"do": "pause"})

    def close(self) -> None:
        # They hold nothing: a run is in its directory.
        for worker in self._workers:
            worker.connection.kill()
        self._workers, self._waiting = [], []
