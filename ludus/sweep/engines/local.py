"""Runs a sweep in worker processes of this machine: warm, one thread each, gone when the sweep is."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError, LudusError
from ludus.process.child import Child, ChildDied, ChildFailed, ChildHung, ready_among
from ludus.sweep.curve import Point
from ludus.sweep.engine import MakeTrainer, RunEnd, RunListener, Task

_START_SECONDS = 300.0
_MAX_DEAD_STARTS = 3


@dataclass
class _Worker:
    """One process and what it is doing."""

    child: Child
    heard: float
    """When it last said anything."""
    is_ready: bool = False
    """Whether it has imported everything."""
    task: Task | None = None


@register("sweep_engine", "local")
class LocalEngine:
    """A pool of processes. One that dies or hangs costs its run, and is replaced."""

    class Config(StrictConfig):
        """Options of the pool."""

        kind: Literal["local"]
        """Processes of this machine."""
        workers: Annotated[int, Field(ge=1, le=512)]
        """Number of processes, each with one run at a time and one thread."""
        hang_seconds: PositiveFloat | None
        """A run that comes to no boundary for so long is killed, and has failed; null: no limit."""
        memory_gb: PositiveFloat | None
        """Memory that a process may take; a run that needs more has failed; null: no limit."""

    is_here = False

    def __init__(self, config: Config, *, make_trainer: MakeTrainer | None = None) -> None:
        if make_trainer is not None:
            raise ConfigError(
                "make_trainer_fn stays in this process, and 'engine.kind' is local: set it to inline, or"
                " register the trainer in a module and load it with ludus.load_plugin"
            )
        self._config = config
        self._workers: list[_Worker] = []
        self._num_dead_starts = 0

    @property
    def capacity(self) -> int:
        return int(self._config.workers)

    def open(self, listener: RunListener) -> None:
        """Start all workers, which import what they need while the first points are chosen."""
        self._listener = listener
        self._workers = [self._started(number) for number in range(self.capacity)]

    def _started(self, number: int) -> _Worker:
        child = Child("ludus.sweep.worker", name=f"sweep worker {number}")
        child.send({"do": "greet", "memory_gb": self._config.memory_gb})
        return _Worker(child, time.monotonic())

    def launch(self, task: Task) -> None:
        worker = next(one for one in self._workers if one.task is None)
        worker.task, worker.heard = task, time.monotonic()
        try:
            worker.child.send({"do": "run", "task": task.as_json()})
        except (ChildDied, ChildHung) as error:
            self._lose(worker, str(error))

    def work(self, seconds: float) -> None:
        ready = ready_among([one.child for one in self._workers], seconds)
        for worker in list(self._workers):
            if any(worker.child is child for child in ready):
                self._hear(worker)
        for worker in list(self._workers):
            if worker.task is not None:
                self._end_hung(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            header, _ = worker.child.receive()
        except ChildFailed as error:
            # Nothing raises there but what prevents its start.
            raise LudusError(f"a worker of the sweep cannot be started: {error}") from error
        except (ChildDied, ChildHung) as error:
            self._lose(worker, str(error))
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
                    worker.child.send({"do": "answer", "reason": reason})

    def _end_hung(self, worker: _Worker) -> None:
        """Kill a worker that has said nothing for too long."""
        limit = self._config.hang_seconds if worker.is_ready else _START_SECONDS
        silent = time.monotonic() - worker.heard
        # A machine that slept wakes up late: what was said meanwhile counts.
        if limit is None or silent < limit or worker.child.wait(0):
            return
        worker.child.give_up(limit)
        self._lose(worker, f"hung: no boundary for {limit:g} seconds")

    def _lose(self, worker: _Worker, why: str) -> None:
        """Count the run of a dead worker as failed, and replace the worker."""
        task = worker.task
        if not worker.is_ready:
            self._num_dead_starts += 1
            if self._num_dead_starts >= _MAX_DEAD_STARTS:
                raise LudusError(f"workers of the sweep die before they begin: {why}")
        self._replace(worker)
        if task is not None:
            first = why.partition("\n")[0].removesuffix("; it printed last:")
            self._listener.ended(task, RunEnd("failed", first, {}))

    def _replace(self, worker: _Worker) -> None:
        number = self._workers.index(worker)
        worker.child.kill()
        self._workers[number] = self._started(number)

    def pause(self) -> None:
        for worker in self._workers:
            if worker.task is not None:
                with contextlib.suppress(ChildDied, ChildHung):
                    worker.child.send({"do": "pause"})

    def close(self) -> None:
        # They hold nothing: a run is in its directory.
        for worker in self._workers:
            worker.child.kill()
        self._workers = []
