"""Queue of seeds: one run for each, as many at once as the engine executes, until asked to pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ludus.sweep.curve import Point
from ludus.sweep.engine import RunEnd, SweepEngine, Task
from ludus.sweep.search_loop import SearchLoop


class SeedOwner(Protocol):
    """Makes the run of a seed, and takes what it does."""

    def task(self, seed: int) -> Task | None:
        """Return the run of a seed, or its next stretch after a pause; None if it has ended before."""

    def logged(self, task: Task, point: Point) -> None: ...

    def ended(self, task: Task, end: RunEnd) -> None:
        """Take the outcome of a run; one that was interrupted goes on another time."""


class SeedQueue(SearchLoop):
    """Executes the runs of several seeds, in their order."""

    def __init__(
        self, engine: SweepEngine, owner: SeedOwner, directory: str, seeds: Sequence[int]
    ) -> None:
        """`directory` holds the directories of the runs."""
        super().__init__(engine, directory)
        self._owner, self._todo = owner, list(seeds)
        self._num_running = 0

    @property
    def num_running(self) -> int:
        return self._num_running

    def _is_unfinished(self) -> bool:
        return bool(self._todo)

    def _launch(self) -> None:
        while self._todo and self._num_running < self._engine.capacity:
            task = self._owner.task(self._todo.pop(0))
            if task is not None:
                self._num_running += 1
                self._engine.launch(task)

    def logged(self, task: Task, point: Point) -> None:
        """Take a logged value: every run comes to its end."""
        self._owner.logged(task, point)

    def ended(self, task: Task, end: RunEnd) -> None:
        """Pass on how a run ended; one that is to go on is the next to be launched."""
        self._num_running -= 1
        settled = self._settled(task, end)
        self._owner.ended(task, settled or end)
        if settled is None or settled.status == "paused":
            self._todo.insert(0, task.seed)
