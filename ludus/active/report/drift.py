"""Drift of a stream: its accuracy, the state estimates of its windows, and the retrainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludus.active.report._kept import panel, section
from ludus.show.report.charts import Line, line_chart, text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun, number

MARK = "stream.jsonl"
"""The log of an edge: a line for each window, with its step."""

_BASELINE = "_baseline"
_MAX_LISTED = 20

_Rows = Sequence[Mapping[str, Any]]


def drift(runs: Sequence[ReportedRun]) -> Section | None:
    """Return the charts of each stream; None if there is none."""
    return section("Drift of the stream", runs, _of_stream)


def _of_stream(run: ReportedRun) -> str:
    if MARK not in run.names(""):
        return ""
    found = [row for row in run.read_lines(MARK) if _step(row) is not None]
    rows = sorted(found, key=lambda row: _step(row) or 0)
    if not rows:
        return panel("<p>No window was looked at yet.</p>")
    moments = _moments(rows)
    names = dict.fromkeys(
        name
        for row in rows
        for name in row
        if (name == "accuracy" or name.startswith("state/")) and not name.endswith(_BASELINE)
    )
    charts = [_chart(rows, name, moments) for name in names]
    return f'<div class="charts">{"".join(charts)}</div>' + panel(_list_of(moments))


def _step(row: Mapping[str, Any]) -> int | None:
    step = row.get("step")
    return step if type(step) is int and 0 <= step < 1 << 53 else None


def _chart(rows: _Rows, name: str, moments: Sequence[tuple[float, str]]) -> str:
    lines = [*_line(rows, name, "measured", 0), *_line(rows, name + _BASELINE, "baseline", 1)]
    return line_chart(name.removeprefix("state/"), lines, x_label="step", moments=moments)


def _line(rows: _Rows, name: str, label: str, colour: int) -> list[Line]:
    points = [(float(_step(row) or 0), number(row.get(name))) for row in rows]
    measured = [(x, y) for x, y in points if y is not None]
    if not measured:
        return []
    xs, ys = zip(*measured, strict=True)
    return [Line(label, xs, ys, colour, dash=colour)]


def _moments(rows: _Rows) -> list[tuple[float, str]]:
    """Return the steps at which retraining was requested, and at which a retrained model arrived."""
    found, update = [], rows[0].get("update")
    for row in rows:
        step = _step(row) or 0
        if row.get("update") != update:
            update = row.get("update")
            found.append((float(step), f"step {step}: the model is update {update}"))
        if row.get("retrain") is True:
            found.append((float(step), f"step {step}: retraining was asked for"))
    return found


def _list_of(moments: Sequence[tuple[float, str]]) -> str:
    if not moments:
        return "<p>No retraining was asked for.</p>"
    shown = "".join(f"<p>{text(sentence)}</p>" for _, sentence in moments[:_MAX_LISTED])
    left = len(moments) - _MAX_LISTED
    return shown + (f"<p>and {left:,} more such moments.</p>" if left > 0 else "")
