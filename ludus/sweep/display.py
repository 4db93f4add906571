"""Display of a sweep: a live table in a terminal, a line for each trial in a pipe."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ludus.judge.directions import Direction
from ludus.show.live_table import LiveTable, cut
from ludus.show.terminal import clean
from ludus.sweep.curve import Point
from ludus.sweep.trials import RunOutcome, SweepTrial, best_trial

_SHOWN = 12
_COLOURS = {"complete": "green", "pruned": "yellow", "failed": "red", "open": "cyan"}


class SweepDisplay(LiveTable):
    """Shows the trials; the rows are the best ones, and those under way."""

    def __init__(
        self,
        title: str,
        metric: str,
        mode: Direction,
        console: Console,
        *,
        unit: str = "trial",
        is_silent: bool,
    ) -> None:
        """`unit` is what a row of the table is."""
        super().__init__(console, is_silent=is_silent)
        self._title, self._metric, self._mode, self._unit = title, metric, mode, unit
        self._trials: Mapping[int, SweepTrial] = {}
        self._max_trials: int | None = None
        self._running: dict[tuple[int, int], float | None] = {}
        self._began = time.monotonic()

    def open(self, trials: Mapping[int, SweepTrial], max_trials: int | None) -> None:
        """Start showing."""
        self._trials, self._max_trials = trials, max_trials
        self.start()

    def began(self, trial: SweepTrial, seed: int) -> None:
        self._running[trial.number, seed] = None

    def logged(self, trial: SweepTrial, seed: int, point: Point) -> None:
        self._running[trial.number, seed] = point.value

    def ended(self, trial: SweepTrial, outcome: RunOutcome | None) -> None:
        if outcome is not None:
            self._running.pop((trial.number, outcome.seed), None)
        elif not self.is_live:
            self.say(self._line(trial))

    def _line(self, trial: SweepTrial) -> str:
        """Return a trial as one line."""
        best = best_trial(list(self._trials.values()), self._mode)
        best_text = f"best: {self._unit} {best.number} {_score(best)}  " if best else ""
        score = f"{trial.state}  {_score(trial)}"
        head = f"{self._unit} {trial.number}: {score}  {best_text}{_point(trial.point)}"
        return head + (f"  ({trial.reason})" if trial.reason else "")

    def render(self) -> RenderableType:
        trials = list(self._trials.values())
        counts = {state: sum(t.state == state for t in trials) for state in _COLOURS}
        of = f" of {self._max_trials}" if self._max_trials is not None else ""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        summary = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        head = Text(
            cut(
                clean(
                    f"{self._title}: {len(trials)}{of} {self._unit}s ({summary or 'none'}),"
                    f" {minutes}:{seconds:02d}"
                )
            )
        )
        return Group(head, self.table(trials))

    def table(self, trials: list[SweepTrial]) -> Table:
        """Return the best trials and those under way, as a table."""
        rows = ranked(trials, self._mode)
        shown = [t for t in rows if t.state == "open"][:_SHOWN]
        shown = [t for t in rows if t.state != "open"][: _SHOWN - len(shown) // 2] + shown
        table = Table(
            self._unit, "state", clean(self._metric), "point", "why", box=None, pad_edge=False
        )
        for trial in shown:
            state = Text(trial.state, style=_COLOURS[trial.state])
            score = self._score_of(trial)
            texts = [Text(clean(one)) for one in (score, _point(trial.point), trial.reason or "")]
            table.add_row(str(trial.number), state, *texts)
        return table

    def _score_of(self, trial: SweepTrial) -> str:
        if trial.score is not None:
            return _score(trial)
        values = [
            v
            for (number, _), v in self._running.items()
            if number == trial.number and v is not None
        ]
        return " ".join(f"({value:.5g})" for value in values)


def ranked(trials: Sequence[SweepTrial], mode: Direction) -> list[SweepTrial]:
    """Return the trials, the best first; after those with a score, the others by the values of their runs."""
    sign = -1 if mode == "max" else 1

    def place(trial: SweepTrial) -> tuple[int, float, int]:
        if trial.state == "complete" and trial.score is not None:
            return 0, sign * trial.score.mean, trial.number
        values = [run.value for run in trial.runs.values() if run.value is not None]
        finite = [value for value in values if math.isfinite(value)]
        if finite:
            return 1, sign * sum(finite) / len(finite), trial.number
        return 2, 0.0, trial.number

    return sorted(trials, key=place)


def _score(trial: SweepTrial) -> str:
    """Return a score with half the width of its interval."""
    score = trial.score
    if score is None:
        return ""
    return f"{score.mean:.6g}" + ("" if score.half is None else f" ± {score.half:.2g}")


def _point(point: Mapping[str, Any]) -> str:
    return " ".join(f"{path.split('.')[-1]}={_value(value)}" for path, value in point.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind", "{...}"))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
