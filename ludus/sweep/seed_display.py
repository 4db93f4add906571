"""Display of the runs of several seeds: a table on a terminal, lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ludus.show.counts import progress
from ludus.show.live_table import LiveTable, cut
from ludus.show.terminal import clean
from ludus.sweep.curve import Point
from ludus.sweep.seed_results import SeedResult

_SECONDS_BETWEEN_LINES = 10.0
_COLOURS = {
    "finished": "green", "stopped": "green", "failed": "red", "interrupted": "yellow",
    "running": "cyan", "waiting": "dim",
}  # fmt: skip


class SeedDisplay(LiveTable):
    """Shows how far the run of each seed is."""

    def __init__(self, title: str, console: Console, *, is_silent: bool) -> None:
        super().__init__(console, is_silent=is_silent, stays=False)
        self._title = title
        self._runs: Mapping[int, SeedResult] = {}
        self._news: dict[int, Point | None] = {}
        self._began = time.monotonic()
        self._said = self._began

    def open(self, runs: Mapping[int, SeedResult]) -> None:
        """Start showing these runs, which change as they end."""
        self._runs = runs
        self.start()

    def began(self, seed: int) -> None:
        self._news[seed] = None

    def logged(self, seed: int, point: Point) -> None:
        """Show a logged value; in a pipe, a line now and then says that the run makes progress."""
        self._news[seed] = point
        now = time.monotonic()
        if not self.is_live and now - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = now
            self.say(f"seed {seed}: {progress(point.counters)}  {point.value:.6g}")

    def ended(self, run: SeedResult) -> None:
        self._news.pop(run.seed, None)
        if not self.is_live:
            self.say(line_of(run))

    def render(self) -> RenderableType:
        runs = self._runs.values()
        num_done = sum(run.status not in ("waiting", "interrupted") for run in runs)
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        head = f"{self._title}: {num_done} of {len(runs)} seeds, {minutes}:{seconds:02d}"
        table = Table("seed", "status", "progress", "score", "why", box=None, pad_edge=False)
        for run in runs:
            status = "running" if run.seed in self._news else run.status
            point = self._news.get(run.seed)
            counters = run.counters if point is None else point.counters
            score = _score(run) if point is None else f"({point.value:.6g})"
            cells = [progress(counters), score, run.reason or ""]
            table.add_row(
                str(run.seed),
                Text(status, style=_COLOURS[status]),
                *[Text(clean(cell)) for cell in cells],
            )
        return Group(Text(cut(clean(head))), table)


def line_of(run: SeedResult) -> str:
    """Return a run as one line."""
    words = [f"seed {run.seed}: {run.status}", _score(run), progress(run.counters)]
    words += [f"({run.reason})"] if run.reason else []
    return "  ".join(word for word in words if word)


def _score(run: SeedResult) -> str:
    if run.best is None or run.score is None:
        return ""
    return f"{run.best['metric']} {run.score:.6g}"
