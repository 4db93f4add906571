"""Display in a notebook: one block of HTML that is updated in place, without widgets."""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus.core.plan import Repeat
from ludus.core.run import Run
from ludus.show.base import Display
from ludus.show.names import is_evaluation, most_informative
from ludus.show.plot import framed
from ludus.show.progress import Place
from ludus.show.report.charts import NARROW, line_chart, text
from ludus.show.report.curves import AXIS_NAMES
from ludus.show.report.strokes import Line
from ludus.show.sparkline import Courses, Points
from ludus.show.terminal import clean
from ludus.show.wording import Value, number, pace, scores_first, speed, where

SECONDS_BETWEEN_UPDATES = 0.5
_MOST_MESSAGES, _MOST_ROWS, _MOST_CURVES = 20, 24, 2
_BETWEEN = " · "
_DIM = "color:#777;font-size:90%"

Update = Callable[[str], None]
"""Shows HTML in the place of what it has shown before."""


def block_below_cell() -> Update:
    """Return what updates one block of HTML below the cell that runs now."""
    show: Any = importlib.import_module("IPython.display")
    handle: Any = None

    def update(content: str) -> None:
        nonlocal handle
        if handle is None:
            handle = show.display(show.HTML(content), display_id=True)
        else:
            handle.update(show.HTML(content))

    return update


class NotebookDisplay(Display):
    """Shows progress, metrics, the curve of the score and messages in one block.

    It is updated at boundaries and by records, at most twice a second; no thread draws it.
    """

    outlives_its_close = True

    def __init__(
        self, about: Mapping[str, str], plan: Repeat, update: Update, scores: Sequence[str] = ()
    ) -> None:
        super().__init__(plan)
        self._about, self._update = about, update
        self._scores = scores
        self._courses = Courses(scores)
        self._metrics: dict[str, Value] = {}
        self._counters: dict[str, int] = {}
        self._messages: deque[str] = deque(maxlen=_MOST_MESSAGES)
        self._num_messages = 0
        self._due = 0.0
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._odometer.open()
            self._draw()

    def __call__(self, run: Run, /) -> None:
        super().__call__(run)
        if self._is_open and time.monotonic() >= self._due:
            self._draw()

    def show(self, record: Mapping[str, Value], counters: Mapping[str, int]) -> None:
        self._metrics = {**self._metrics, **record}
        self._counters = dict(counters)
        self._courses.add(record, counters)
        if not self._is_open or time.monotonic() >= self._due:
            self._draw()

    def message(self, text: str) -> None:
        self._messages.append(clean(text))
        self._num_messages += 1
        if not self._is_open or time.monotonic() >= self._due:
            self._draw()

    def phase(self, description: str, done: int, total: int) -> None:
        super().phase(description, done, total)
        if self._is_open and time.monotonic() >= self._due:
            self._draw()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._draw()

    def _draw(self) -> None:
        self._due = time.monotonic() + SECONDS_BETWEEN_UPDATES
        place = self._place()
        parts = [
            f"<b>{text(self._about.get('run', 'run'))}</b> {_dim(_facts(self._about))}",
            _progress(place, self._speeds(place), self._phase),
            _dim(
                "  ".join(f"{name} {count:,}" for name, count in self._counted().items() if count)
            ),
            f'<div style="display:flex;flex-wrap:wrap;gap:0 24px">{self._curves()}{self._tables()}</div>',
            *(f"<div>{_dim(said)}</div>" for said in self._said()),
        ]
        try:
            self._update("\n".join(part for part in parts if part))
        # A notebook whose page is closed, or whose kernel is ending, must not end the run.
        except Exception:
            self._due = float("inf")

    def _said(self) -> list[str]:
        """Return the newest messages, and how many came before them."""
        num_earlier = self._num_messages - len(self._messages)
        earlier = [f"({num_earlier} earlier messages)"] if num_earlier else []
        return [*earlier, *self._messages]

    def _counted(self) -> Mapping[str, int]:
        return self._counters if self._run is None else self._run.counters

    def _curves(self) -> str:
        courses = list(self._courses.points.items())[:_MOST_CURVES]
        charts = [_curve(name, points, self._courses.axis) for name, points in courses if points]
        return f'<div style="width:400px">{framed("".join(charts))}</div>' if charts else ""

    def _tables(self) -> str:
        names = scores_first(most_informative(self._metrics), self._scores)
        groups = [
            [name for name in names if is_evaluation(name)],
            [name for name in names if not is_evaluation(name)],
        ]
        return "".join(_table({n: self._metrics[n] for n in group}) for group in groups if group)


def _facts(about: Mapping[str, str]) -> str:
    return _BETWEEN.join(f"{name} {fact}" for name, fact in about.items() if name != "run")


def _progress(place: Place, speeds: Mapping[str, float], phase: tuple[str, int, int] | None) -> str:
    """Return the bar of the whole run, and below it where it is and how fast."""
    fraction = place.fraction
    if phase is not None:
        description, done, total = phase
        at = f"{description} {done:,} of {total:,}"
    else:
        at = place.doing if place.is_over else where(place) or place.doing
    said = _BETWEEN.join(filter(None, [at, *pace(place, elapsed=True).split("  "), speed(speeds)]))
    bar = "" if fraction is None else f'value="{fraction:.4f}"'
    return f'<progress {bar} style="width:100%"></progress><div>{text(said)}</div>'


def _curve(name: str, points: Points, axis: str) -> str:
    # An asynchronous evaluation arrives late.
    ordered = sorted(points)
    line = Line(clean(name), [at for at, _ in ordered], [value for _, value in ordered])
    label = AXIS_NAMES.get(axis, axis)
    return line_chart(clean(name), [line], x_label=label, size=NARROW, num_bands=0)


def _table(values: Mapping[str, Value]) -> str:
    rows = "".join(
        f'<tr><td style="text-align:left">{text(clean(name))}</td>'
        f'<td style="text-align:right">{text(number(value))}</td></tr>'
        for name, value in list(values.items())[:_MOST_ROWS]
    )
    more = len(values) - _MOST_ROWS
    note = f"<tr><td>+ {more} more</td><td></td></tr>" if more > 0 else ""
    return f'<table style="align-self:flex-start">{rows}{note}</table>'


def _dim(said: str) -> str:
    return f'<span style="{_DIM}">{text(said)}</span>' if said else ""
