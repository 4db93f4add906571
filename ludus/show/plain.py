"""Plain-text display, for a pipe, a file or the log of a CI job."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence

from rich.console import Console

from ludus.core.plan import Repeat
from ludus.show.base import TERMINAL_IS_GONE, Display
from ludus.show.names import is_evaluation
from ludus.show.progress import Place
from ludus.show.terminal import clean, printable
from ludus.show.wording import Value, line, wrapped

SECONDS_BETWEEN_LINES = 2.0


class PlainDisplay(Display):
    """Writes lines: every evaluation, every message, and the other metrics every two seconds."""

    outlives_its_close = True

    def __init__(
        self, about: Mapping[str, str], plan: Repeat, console: Console, scores: Sequence[str] = ()
    ) -> None:
        super().__init__(plan)
        self._about = about
        self._scores = scores
        self._file = console.file
        self._encoding = console.encoding
        self._is_open = self._has_said_the_end = False
        self._wrote = -math.inf
        self._held_back: tuple[dict[str, Value], dict[str, int], Place] = ({}, {}, Place())

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        self._odometer.open()
        facts = [clean(f"{name} {text}") for name, text in self._about.items()]
        for some in wrapped(facts):
            self._write(some)

    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        now = {} if self._run is None else self._run.counters
        if any(count < now.get(name, 0) for name, count in counters.items()):
            # An asynchronous evaluation arrives late, with the counters of its launch.
            self._write(line(record, counters, None, scores=self._scores))
            return
        place, (held, then, there) = self._place(), self._held_back
        is_elsewhere = _outermost(there) != _outermost(place) and then != dict(counters)
        if is_elsewhere and not held.keys() <= record.keys():
            # Metrics logged in pretraining must not appear with the first iteration after it.
            self._write_record()
        self._held_back = ({**self._held_back[0], **record}, dict(counters), place)
        is_due = time.monotonic() - self._wrote >= SECONDS_BETWEEN_LINES
        if is_due or not self._is_open or any(map(is_evaluation, record)):
            self._write_record()

    def message(self, text: str) -> None:
        self._write(clean(text))

    def phase(self, description: str, done: int, total: int) -> None:
        super().phase(description, done, total)
        if done and time.monotonic() - self._wrote >= SECONDS_BETWEEN_LINES:
            self._wrote = time.monotonic()
            self._write(clean(f"{description} {done}/{total}"))

    def close(self) -> None:
        if self._is_open and self._held_back[0]:
            self._write_record()
        place = self._place()
        if self._is_open and place.is_over and not self._has_said_the_end:
            # The last record may have been written at 95%; the last line says how the run ended.
            self._held_back = ({}, {} if self._run is None else dict(self._run.counters), place)
            self._write_record()
        self._is_open = False

    def _write_record(self) -> None:
        record, counters, place = self._held_back
        speeds = self._speeds(place)
        self._write(line(record, counters, place, speeds=speeds, scores=self._scores))
        self._has_said_the_end = place.is_over
        self._wrote = time.monotonic()
        self._held_back = ({}, {}, Place())

    def _write(self, text: str) -> None:
        # A reader that is gone (`| head`) must not end the run, so such errors stop here.
        with contextlib.suppress(*TERMINAL_IS_GONE):
            self._file.write(printable(text, self._encoding) + "\n")
            self._file.flush()


def _outermost(place: Place) -> str:
    return place.loops[0].name if place.loops else ""
