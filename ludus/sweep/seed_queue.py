"""Queue of seeds: one run for each, as many at once as the engine executes, until asked to pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ludus.sweep.curve import Point
from ludus.sweep.engine import RunEnd, SweepEngine, Task

_WAIT_SECONDS = 0.5


class SeedOwner(Protocol):
    """Knows what the run of a seed is, and is told what it does."""

    def task(self, seed: int) -> Task | None:
        """Return the run of a seed, or its next stretch after a pause; None if it has ended before."""

    def logged(self, task: Task, point: Point) -> None: ...

    def ended(self, task: Task, end: RunEnd) -> None:
        """Take the outcome of a run; one that was interrupted goes on another time."""


class SeedQueue:
    """Executes the runs of several seeds, in their order."""

    def __init__(self, engine: SweepEngine, owner: SeedOwner, directory: str) -> None:
        """`directory` holds the directories of the runs."""
        self._engine, self._owner, self._directory = engine, owner, directory
        self._num_running = 0
        self._is_pausing = False

    def ask_to_pause(self) -> None:
        """Begin nothing more, and let runs under way save and end; a signal handler may call it."""
        self._is_pausing = True

    def run(self, seeds: Sequence[int]) -> None:
        """Execute all of them, or until it is to pause."""
        todo, is_told = list(seeds), False
        self._engine.open(self, self._directory)
        try:
            while (todo and not self._is_pausing) or self._num_running:
                while todo and not self._is_pausing and self._num_running < self._engine.capacity:
                    self._begin(todo.pop(0))
                if self._is_pausing and not is_told:
                    is_told = True
                    self._engine.pause()
                if self._num_running:
                    self._engine.work(_WAIT_SECONDS)
        finally:
            self._engine.close()

    def _begin(self, seed: int) -> None:
        task = self._owner.task(seed)
        if task is not None:
            self._num_running += 1
            self._engine.launch(task)

    def logged(self, task: Task, point: Point) -> None:
        """Hear of a logged value: every run comes to its end."""
        self._owner.logged(task, point)

    def ended(self, task: Task, end: RunEnd) -> None:
        """Take the outcome of a run; an interruption is meant for all of them."""
        self._num_running -= 1
        self._is_pausing |= end.status == "interrupted"
        self._owner.ended(task, end)
        if end.status == "paused" and not self._is_pausing:
            self._begin(task.seed)
