"""Loop of a search: launch runs on an engine and record how they end, until nothing is left or it pauses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ludus.core.errors import LudusError
from ludus.sweep.engine import RunEnd, RunListener, SweepEngine, Task

_MAX_PAUSES = 3
_WAIT_SECONDS = 0.5


class SearchLoop(RunListener, ABC):
    """Executes the runs of a search; what is launched, and what follows from an end, is the search's own."""

    def __init__(self, engine: SweepEngine, directory: str) -> None:
        self._engine, self._directory = engine, directory
        self._num_pauses: dict[tuple[int, int], int] = {}
        self.is_pausing = self._is_asked_to_pause = False
        self.after_trial: Callable[[], None] = _do_nothing

    @property
    @abstractmethod
    def num_running(self) -> int:
        """Number of runs that the engine executes now."""

    @abstractmethod
    def _launch(self) -> None:
        """Launch what there is room for."""

    @abstractmethod
    def _is_unfinished(self) -> bool:
        """Return whether anything is left, although nothing runs."""

    def run(self) -> bool:
        """Search to the end; return false if it was asked to pause before."""
        self._engine.open(self, self._directory)
        try:
            while self._step():
                pass
        finally:
            self._engine.close()
        return not self.is_pausing

    def ask_to_pause(self) -> None:
        """Begin nothing more, and let runs under way save and end; a signal handler may call it."""
        self._is_asked_to_pause = True

    def _step(self) -> bool:
        """Do what can be done now; return whether anything is left."""
        if self._is_asked_to_pause and not self.is_pausing:
            self.is_pausing = True
            self._engine.pause()
        if not self.is_pausing:
            self._launch()
        if self.num_running:
            self._engine.work(_WAIT_SECONDS)
            return True
        return not self.is_pausing and self._is_unfinished()

    def _settled(self, task: Task, end: RunEnd) -> RunEnd | None:
        """Return how a run ended; None if it was interrupted and goes on another time."""
        if end.status == "interrupted":
            self._num_pauses[task.key] = self._num_pauses.get(task.key, 0) + 1
            if self.is_pausing or self._engine.is_here:
                self.is_pausing = True
                return None
            if self._num_pauses[task.key] < _MAX_PAUSES:
                # A signal reached the worker alone: its run goes on.
                return None
            last = f", the last time because {end.reason}" if end.reason else ""
            end = RunEnd("failed", f"interrupted {_MAX_PAUSES} times{last}", end.counters)
        return end


def _do_nothing() -> None:
    """Default of `after_trial`."""


def check_fatal(end: RunEnd, name: str) -> None:
    """Raise LudusError if every run would end like this one, of this name."""
    if end.is_fatal:
        raise LudusError(f"{name}: {end.reason}; fix this, then run the same command again")
