"""The curves of a page for its script, as JSON that cannot end the element it stands in."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ludus.show.report.band import BAND_NAMES, BAND_WORDS, Band
from ludus.show.report.bands import RunCurve, Values
from ludus.show.report.chart_lines import ChartLine, PageCurves
from ludus.show.report.charts import text
from ludus.show.report.scales import is_drawn
from ludus.show.report.series import is_count

SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
SCRIPT_HASH = "sha256-" + base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()


class PageData:
    """Collects the curves of a page's charts."""

    def __init__(self, page: PageCurves, axis_names: dict[str, str]) -> None:
        self._page, self._axis_names = page, axis_names
        self._charts: list[dict[str, Any]] = []
        self._places: dict[tuple[float, ...], int] = {}
        self._axes: dict[str, int] = {}

    def add(self, lines: Sequence[ChartLine], axis: str, size: tuple[float, float]) -> int:
        """Add a chart and return its number."""
        shown = [self._line(one) for one in lines]
        curves = [curve for line in shown for curve in line["runs"]]
        for name in dict.fromkeys([axis, *(name for one in curves for name in one["x"])]):
            if all(name in one["x"] for one in curves):
                self._axes[name] = self._axes.get(name, 0) + (name == axis)
        self._charts.append({"axis": axis, "size": size, "lines": shown})
        return len(self._charts) - 1

    def _line(self, one: ChartLine) -> dict[str, Any]:
        line, page = one.line, self._page
        # Where a best model was found is a place on every axis.
        bests = []
        for counters, score in one.best:
            clocks = page.clocks[one.series[0].run]
            places = {name: value for name, value in counters.items() if is_count(value)}
            times = {name: float(clocks.times(name, [places])[0]) for name in clocks.names}
            if is_drawn(score):
                bests.append({"x": {**places, **times}, "y": score})
        return {
            "label": line.label, "colour": line.colour, "dash": line.dash,
            "dots": line.is_dots, "group": bool(line.runs), "best": bests,
            "runs": [
                {
                    "name": page.labels[drawn.run],
                    "counts": page.is_counted(drawn),
                    **self._curve(page.curve_of(drawn)),
                }
                for drawn in one.series
            ],
        }  # fmt: skip

    def _curve(self, curve: RunCurve) -> dict[str, Any]:
        found: dict[str, Any] = {
            "x": {name: self._place(xs) for name, xs in curve.xs.items()},
            "y": _short(curve.ys),
        }
        if curve.lows is not None and curve.highs is not None:
            found |= {"low": _short(curve.lows), "high": _short(curve.highs)}
        return found

    def _place(self, xs: Values) -> int:
        """Return the number of these places, which the metrics of a run share."""
        # Counts stay exact; the rest are times, of which a millisecond is enough.
        return self._places.setdefault(tuple(np.round(xs, 3).tolist()), len(self._places))

    @property
    def has_charts(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self._charts)

    def element(self) -> str:
        """Return the elements of the data and of the script."""
        names = sorted(self._axes, key=lambda name: (-self._axes[name], [*self._names].index(name)))
        data = {
            "axes": [[name, self._names.get(name, name)] for name in names],
            "band": self._page.band,
            "x": [_progression(xs) for xs in self._places],
            "charts": self._charts,
        }
        return (
            f'<script type="application/json" id="curves">{safe_json(data)}</script>\n'
            f"<script>{SCRIPT}</script>"
        )

    @property
    def _names(self) -> dict[str, str]:
        return {
            **self._axis_names,
            **{name: name for name in self._axes if name not in self._axis_names},
        }

    def choices(self) -> str:
        """Return the form by which the script draws the charts in other ways; hidden without it."""
        bands = "".join(
            f'<option value="{band.value}"{" selected" * (band is self._page.band)}>{name}</option>'
            for band, name in BAND_NAMES.items()
        )
        has_groups = any(len(one.runs) > 1 for one in self._page.groups)
        band = f'<label>band <select id="band">{bands}</select></label>' if has_groups else ""
        runs = '<label><input type="checkbox" id="runs" checked> single runs</label>'
        return (
            '<form id="choices" class="panel" hidden>'
            '<label>x axis <select id="axis"></select></label>'
            '<label>smoothing <input type="range" id="smoothing" min="0" max="0.99" step="0.01" value="0">'
            f' <output id="weight">0</output></label>{band}{runs if has_groups else ""}</form>'
        )


def band_note(page: PageCurves) -> str:
    """Return what the lines and areas of a page with groups are; empty without a group."""
    if all(len(one.runs) < 2 for one in page.groups):
        return ""
    area = "" if page.band is Band.NONE else f"; the area: {BAND_WORDS[page.band]}"
    return (
        '<p class="note">Strong lines are the mean of a group\'s runs, as far as all of them go; faint lines'
        f'<span id="area">: single runs{text(area)}.</span></p>'
    )


def safe_json(data: object) -> str:
    """Return JSON in which no text can end a script element or begin a comment."""
    made = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        made = made.replace(sign, f"\\u{ord(sign):04x}")
    return made


def _short(values: Values) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _progression(xs: Sequence[float]) -> object:
    """Return places as they are, or as the first, the step and the number of evenly spaced ones."""
    plain = [int(x) if x == int(x) else x for x in xs]
    steps = {b - a for a, b in itertools.pairwise(plain)}
    if len(plain) > 3 and len(steps) == 1:
        return {"first": plain[0], "step": steps.pop(), "count": len(plain)}
    return plain
