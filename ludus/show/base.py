"""Base of every display: it observes a run, receives its log records, and never disturbs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

from ludus.core.plan import Repeat
from ludus.core.run import Run
from ludus.show.progress import Odometer, Place
from ludus.show.speed import Speedometer
from ludus.show.terminal import clean
from ludus.show.wording import Value

TERMINAL_IS_GONE = (OSError, ValueError, SystemExit)
"""Raised when the reader is gone: SystemExit by rich, ValueError by a closed file."""


class Display(ABC):
    """Observes a run and displays it. It never changes the run, and a lost terminal does not end it."""

    def __init__(self, plan: Repeat) -> None:
        self._run: Run | None = None
        self._odometer = Odometer(plan)
        self._speedometer = Speedometer()
        self._phase: tuple[str, int, int] | None = None
        self._num_boundaries = 0

    outlives_its_close = False
    """Whether it also shows what the logger writes after it was closed."""

    @property
    def is_open(self) -> bool:
        """Whether the run is being displayed."""
        return True

    @abstractmethod
    def open(self) -> None:
        """Start displaying; a second call does nothing."""

    @abstractmethod
    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        """Show a record that the logger has just written."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Show one line that the user should see."""

    def notice(self, text: str) -> bool:
        """Show a line from a signal handler, and return whether that is possible: it must not write now."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal; a second call does nothing."""

    def phase(self, description: str, done: int, total: int) -> None:
        """Set the progress of a phase that the trainer counts itself."""
        self._phase = (clean(description), done, total)

    def end_phase(self) -> None:
        """Remove the phase."""
        self._phase = None

    def __call__(self, run: Run, /) -> None:
        """Observe this run. Called at every boundary, so the costly part runs ever more rarely."""
        if run is not self._run:
            self._run = run
            self._odometer.begin(run)
            self._speedometer.begin(run.counters)
        self._num_boundaries += 1
        # An inner loop's length is known only while it is open, and changes every percentage. How far
        # a run is when it is stopped is known only at the boundaries before its loops have closed.
        is_read = not self._num_boundaries & (self._num_boundaries - 1)
        if is_read or run.stop_reason is not None:
            self._odometer.read(run)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _place(self) -> Place:
        return Place() if self._run is None else self._odometer.read(self._run)

    def _speeds(self, place: Place) -> Mapping[str, float]:
        if self._run is None:
            return {}
        return self._speedometer.read(dict(self._run.counters), is_over=place.is_over)
