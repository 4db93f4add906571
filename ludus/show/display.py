"""Make the display of a run: panels, one line, a block in a notebook, plain text for a pipe, or nothing."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ludus.core.errors import ConfigError, nearest
from ludus.core.plan import Repeat
from ludus.show.base import TERMINAL_IS_GONE, Display as Display
from ludus.show.live import SteadyLive, in_notebook, is_terminal
from ludus.show.memory import Memory
from ludus.show.names import is_evaluation
from ludus.show.panels import Scene, draw_line, draw_panels
from ludus.show.plain import PlainDisplay
from ludus.show.sparkline import Courses
from ludus.show.terminal import clean, warn
from ludus.show.wording import ShownScore, Value

KINDS = ("auto", "rich", "minimal", "plain", "none")

_NOTICE_HEIGHT = 8
"""Lines of a terminal that has one to spare for notices."""

Draw = Callable[[Scene, int, int], RenderableType]


def make_display(
    kind: str,
    about: Mapping[str, str],
    plan: Repeat,
    *,
    console: Console | None = None,
    scores: Sequence[str] = (),
) -> Display:
    """Return the display of this kind; 'auto' draws panels on a terminal, else writes plain lines.

    In a notebook it is a block that is updated in place, unless the kind is 'plain' or 'none'. `about`
    holds short facts about the run; 'device' is shown next to the memory in use. `scores` names the
    metrics by which the run is judged: they come first, and their course is drawn.
    """
    console = Console() if console is None else console
    if kind in ("auto", "rich", "minimal") and in_notebook():
        # Imported when used: it draws the charts of the report.
        from ludus.show.notebook import NotebookDisplay, block_below_cell

        return NotebookDisplay(about, plan, block_below_cell(), scores)
    if kind == "auto":
        is_plain = console.is_dumb_terminal or console.options.ascii_only
        kind = "rich" if is_terminal(console.file) and not is_plain else "plain"
    if kind == "rich":
        return LiveDisplay(about, plan, console, draw_panels, scores)
    if kind == "minimal":
        return LiveDisplay(about, plan, console, draw_line, scores)
    if kind == "plain":
        return PlainDisplay(about, plan, console, scores)
    if kind == "none":
        return NoDisplay(plan)
    raise ConfigError(f"settings.display is '{kind}'.{nearest(kind, KINDS)}")


class NoDisplay(Display):
    """Shows nothing at all."""

    def open(self) -> None: ...
    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None: ...
    def message(self, text: str) -> None: ...
    def close(self) -> None: ...


class LiveDisplay(Display):
    """Redraws a few lines at the bottom of the terminal; everything else is printed above them."""

    def __init__(
        self,
        about: Mapping[str, str],
        plan: Repeat,
        console: Console,
        draw: Draw,
        scores: Sequence[str] = (),
    ) -> None:
        super().__init__(plan)
        self._console = console
        self._draw = draw
        self._about = {self._clean(name): self._clean(text) for name, text in about.items()}
        self._memory = Memory()
        self._courses = Courses([self._clean(name) for name in scores])
        self._metrics: dict[str, Value] = {}
        self._scores: dict[str, ShownScore] = {}
        self._counters: dict[str, int] = {}
        self._live: SteadyLive | None = None
        self._notice = ""

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
            # A killed process could not show the cursor again, so it is never hidden.
            self._console.show_cursor(True)
        except BaseException:
            self.close()
            raise

    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        # The drawing thread may be reading, so the dictionaries are replaced, never changed.
        metrics, scores = dict(self._metrics), dict(self._scores)
        record = {self._clean(name): value for name, value in record.items()}
        for name, value in record.items():
            if is_evaluation(name):
                scores[name] = ShownScore.after(scores.get(name), name, value)
            else:
                metrics[name] = value
        self._courses.add(record, counters)
        self._metrics, self._scores, self._counters = metrics, scores, dict(counters)

    def message(self, text: str) -> None:
        line = Text(self._clean(text))
        if self._live is not None:
            self._live.attempt(lambda: self._console.print(line))
        else:
            with contextlib.suppress(*TERMINAL_IS_GONE):
                self._console.print(line)

    def notice(self, text: str) -> bool:
        self._notice = text
        return self._live is not None

    def close(self) -> None:
        live, self._live = self._live, None
        _open_displays.discard(self)
        if live is None:
            return
        with contextlib.suppress(*TERMINAL_IS_GONE):
            live.stop()
            if not self._console.is_terminal:
                self._console.line()
        if live.failure is not None and not isinstance(live.failure, OSError | SystemExit):
            with contextlib.suppress(*TERMINAL_IS_GONE):
                warn(f"the display stopped early: {live.failure!r}")

    def forget(self) -> None:
        """Leave the terminal to the parent process after a fork."""
        if self._live is not None:
            self._live.let_go()
        self._live, self._console = None, Console(quiet=True)

    def _render(self) -> RenderableType:
        counters = self._counters if self._run is None else dict(self._run.counters)
        place = self._place()
        scene = Scene(
            about=self._about,
            place=place,
            counters=counters,
            metrics=self._metrics,
            scores=self._scores,
            memory=self._memory.read(),
            phase=self._phase,
            speeds=self._speeds(place),
            courses=self._courses.values,
        )
        width, height = self._console.size
        if height < _NOTICE_HEIGHT:
            return self._draw(scene, width, height)
        # The cursor is left in this line, where a terminal echoes ^C without moving the panels.
        notice = Text(self._clean(self._notice), no_wrap=True, overflow="ellipsis", style="yellow")
        return Group(self._draw(scene, width, height - 1), notice)

    def _clean(self, text: str) -> str:
        return clean(text, self._console.encoding)


_open_displays: weakref.WeakSet[LiveDisplay] = weakref.WeakSet()


def _forget_open_displays() -> None:
    # In a forked child the terminal's lock may be held by a thread that does not exist there.
    for display in list(_open_displays):
        display.forget()
    _open_displays.clear()


os.register_at_fork(after_in_child=_forget_open_displays)
