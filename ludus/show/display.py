"""Show a run to whoever is watching: panels, one line, plain text for a pipe, or nothing."""

from __future__ import annotations

import contextlib
import math
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.text import Text

from ludus.core.errors import ConfigError, nearest
from ludus.core.plan import Repeat
from ludus.core.run import Run
from ludus.show.panels import Memory, Scene, SteadyLive, draw_line, draw_panels, is_terminal
from ludus.show.progress import Odometer, Place
from ludus.show.terminal import clean, warn
from ludus.show.wording import EVALUATION, Score, Value, words

KINDS = ("auto", "rich", "minimal", "plain", "none")
SECONDS_BETWEEN_LINES = 2.0

# rich raises SystemExit when the reader of its output has gone away; a closed file, ValueError.
_TERMINAL_IS_GONE = (OSError, ValueError, SystemExit)

Draw = Callable[[Scene, int, int], RenderableType]


def make_display(
    kind: str, about: Mapping[str, str], plan: Repeat, *, console: Console | None = None
) -> Display:
    """Return the display of this kind; 'auto' draws panels on a terminal, else writes plain lines.

    `about` holds short facts about the run; 'device' is shown beside the memory in use.
    """
    console = Console() if console is None else console
    if kind == "auto":
        kind = "rich" if _can_redraw(console) else "plain"
    if kind == "rich":
        return LiveDisplay(about, plan, console, draw_panels)
    if kind == "minimal":
        return LiveDisplay(about, plan, console, draw_line)
    if kind == "plain":
        return PlainDisplay(about, plan, console)
    if kind == "none":
        return NoDisplay(plan)
    raise ConfigError(f"settings.display is '{kind}'.{nearest(kind, KINDS)}")


def _can_redraw(console: Console) -> bool:
    is_plain = console.is_dumb_terminal or console.options.ascii_only
    return is_terminal(console.file) and not is_plain


class Display(ABC):
    """Watches a run and shows it. It never changes the run, and a lost terminal does not end it."""

    def __init__(self, plan: Repeat) -> None:
        self._run: Run | None = None
        self._odometer = Odometer(plan)
        self._phase: tuple[str, int, int] | None = None
        self._num_boundaries = 0

    outlives_its_close = False
    """Whether it shows even what the logger writes after it was closed."""

    @property
    def is_open(self) -> bool:
        """Whether the run is being shown."""
        return True

    @abstractmethod
    def open(self) -> None:
        """Begin to show; a second call does nothing."""

    @abstractmethod
    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        """Take what the logger has just written."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Show one line that the user should see."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal as it was found; a second call does nothing."""

    def phase(self, description: str, done: int, total: int) -> None:
        """Take how far a phase is that the trainer counts itself."""
        self._phase = (clean(description), done, total)

    def end_phase(self) -> None:
        """Forget the phase."""
        self._phase = None

    def __call__(self, run: Run, /) -> None:
        """Watch this run. Called at every boundary, so it does more than compare ever more rarely."""
        if run is not self._run:
            self._run = run
            self._odometer.begin(run)
        self._num_boundaries += 1
        if not self._num_boundaries & (self._num_boundaries - 1):
            # How long an inner loop is shows only while it is open, and weighs in every percentage.
            self._odometer.read(run)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _place(self) -> Place:
        return Place() if self._run is None else self._odometer.read(self._run)


class NoDisplay(Display):
    """Shows nothing at all."""

    def open(self) -> None: ...
    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None: ...
    def message(self, text: str) -> None: ...
    def close(self) -> None: ...


class PlainDisplay(Display):
    """Writes lines: every evaluation, every message, and the other metrics every two seconds."""

    outlives_its_close = True

    def __init__(self, about: Mapping[str, str], plan: Repeat, console: Console) -> None:
        super().__init__(plan)
        self._about = about
        self._file = console.file
        self._encoding = console.encoding
        self._is_open = False
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
        self._write(*(f"{name} {text}" for name, text in self._about.items()))

    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        now = {} if self._run is None else self._run.counters
        if any(count < now.get(name, 0) for name, count in counters.items()):
            # What an evaluation beside the run found comes late, with the counters it was begun at.
            self._write(*words(record, counters, None))
            return
        self._held_back = ({**self._held_back[0], **record}, dict(counters), self._place())
        is_due = time.monotonic() - self._wrote >= SECONDS_BETWEEN_LINES
        if is_due or not self._is_open or any(name.startswith(EVALUATION) for name in record):
            self._write_record()

    def message(self, text: str) -> None:
        self._write(text)

    def phase(self, description: str, done: int, total: int) -> None:
        super().phase(description, done, total)
        if done and time.monotonic() - self._wrote >= SECONDS_BETWEEN_LINES:
            self._wrote = time.monotonic()
            self._write(f"{description} {done}/{total}")

    def close(self) -> None:
        if self._is_open and self._held_back[0]:
            self._write_record()
        self._is_open = False

    def _write_record(self) -> None:
        self._write(*words(*self._held_back))
        self._wrote = time.monotonic()
        self._held_back = ({}, {}, Place())

    def _write(self, *said: str) -> None:
        line = "  ".join(filter(None, (clean(word, self._encoding) for word in said)))
        # A reader who has gone away (`| head`) must not end the run, so such errors end here.
        with contextlib.suppress(*_TERMINAL_IS_GONE):
            self._file.write(line + "\n")
            self._file.flush()


class LiveDisplay(Display):
    """Redraws a few lines at the bottom of the terminal; all else is printed above them."""

    def __init__(
        self, about: Mapping[str, str], plan: Repeat, console: Console, draw: Draw
    ) -> None:
        super().__init__(plan)
        self._console = console
        self._draw = draw
        self._about = {self._clean(name): self._clean(text) for name, text in about.items()}
        self._memory = Memory()
        self._metrics: dict[str, Value] = {}
        self._scores: dict[str, Score] = {}
        self._counters: dict[str, int] = {}
        self._live: SteadyLive | None = None

    @property
    def is_open(self) -> bool:
        return self._live is not None

    def open(self) -> None:
        if self._live is not None:
            return
        self._odometer.open()
        self._live = SteadyLive(self._console, self._render)
        _open_displays.add(self)
        try:
            self._live.start(refresh=True)
            # A killed process has no chance to show the cursor again, so it is never hidden.
            self._console.show_cursor(True)
        except BaseException:
            self.close()
            raise

    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        # The drawing thread may be reading, so the dictionaries are replaced, never changed.
        metrics, scores = dict(self._metrics), dict(self._scores)
        for name, value in record.items():
            name = self._clean(name)
            if name.startswith(EVALUATION):
                scores[name] = Score.after(scores.get(name), name, value)
            else:
                metrics[name] = value
        self._metrics, self._scores, self._counters = metrics, scores, dict(counters)

    def message(self, text: str) -> None:
        line = Text(self._clean(text))
        if self._live is not None:
            self._live.attempt(lambda: self._console.print(line))
        else:
            with contextlib.suppress(*_TERMINAL_IS_GONE):
                self._console.print(line)

    def close(self) -> None:
        live, self._live = self._live, None
        _open_displays.discard(self)
        if live is None:
            return
        with contextlib.suppress(*_TERMINAL_IS_GONE):
            live.stop()
            if not self._console.is_terminal:
                self._console.line()
        if live.failure is not None and not isinstance(live.failure, OSError | SystemExit):
            with contextlib.suppress(*_TERMINAL_IS_GONE):
                warn(f"the display stopped early: {live.failure!r}")

    def forget(self) -> None:
        """Leave the terminal to the process this one was forked from."""
        if self._live is not None:
            self._live.let_go()
        self._live, self._console = None, Console(quiet=True)

    def _render(self) -> RenderableType:
        counters = self._counters if self._run is None else dict(self._run.counters)
        scene = Scene(
            about=self._about,
            place=self._place(),
            counters=counters,
            metrics=self._metrics,
            scores=self._scores,
            memory=self._memory.read(),
            phase=self._phase,
        )
        return self._draw(scene, *self._console.size)

    def _clean(self, text: str) -> str:
        return clean(text, self._console.encoding)


_open_displays: weakref.WeakSet[LiveDisplay] = weakref.WeakSet()


def _forget_open_displays() -> None:
    # In a forked child the lock of the terminal may be held by a thread that does not exist there.
    for display in list(_open_displays):
        display.forget()
    _open_displays.clear()


os.register_at_fork(after_in_child=_forget_open_displays)
