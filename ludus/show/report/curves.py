"""Gather the metrics of one or several runs into charts, those of one kind on one chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ludus.show.report.charts import (
    NARROW,
    NUM_COLOURS,
    NUM_DASHES,
    WIDE,
    Line,
    bar_chart,
    line_chart,
)
from ludus.show.report.files import ReportedRun, Series, mapping, number
from ludus.show.report.scales import is_drawn

AXIS_NAMES = {
    "env_steps": "environment steps",
    "opt_steps": "optimiser steps",
    "epoch": "epochs",
    "iteration": "iterations",
}

# Together these keep a page of any number of charts near one megabyte at most.
_MOST_POINTS = 36_000
_MOST_BANDS = 1_600
_MOST_BUCKETS, _FEWEST_BUCKETS = 500, 20
_MOST_BANDS_EACH, _FEWEST_BANDS_EACH = 80, 8
_MOST_HISTOGRAMS = 60

_Named = list[tuple[int, str, Series]]
"""The series of one chart, each with the number of its run and its full name."""


def metric_charts(runs: Sequence[ReportedRun]) -> str:
    """Return a chart for each kind of metric: train/loss and validation/loss share one."""
    groups: dict[str, _Named] = {}
    for index, run in enumerate(runs):
        for name, series in run.metrics.items():
            groups.setdefault(_kind(name), []).append((index, name, series))
    best_names = {str(best.get("metric")) for run in runs for best in run.all_bests}

    def importance(group: _Named) -> tuple[bool, int]:
        names = {name for _, name, _ in group}
        return not names & best_names, -len(names)

    ordered = dict(sorted(groups.items(), key=lambda item: importance(item[1])))
    return _charts(runs, ordered, WIDE)


def rate_charts(runs: Sequence[ReportedRun]) -> str:
    """Return a chart for each rate in timing.jsonl."""
    groups: dict[str, _Named] = {}
    for index, run in enumerate(runs):
        for name, series in run.rates.items():
            groups.setdefault(name, []).append((index, name, series))
    return _charts(runs, groups, NARROW)


def histogram_charts(run: ReportedRun) -> str:
    """Return the last histogram of each name, for the first sixty names."""
    shown = list(run.histograms.items())[:_MOST_HISTOGRAMS]
    return "\n".join(bar_chart(name, found.edges, found.counts) for name, found in shown)


def _charts(
    runs: Sequence[ReportedRun], groups: Mapping[str, _Named], size: tuple[float, float]
) -> str:
    num_lines = sum(map(len, groups.values())) or 1
    num_buckets = _between(_FEWEST_BUCKETS, _MOST_POINTS // (2 * num_lines), _MOST_BUCKETS)
    num_bands = _between(_FEWEST_BANDS_EACH, _MOST_BANDS // num_lines, _MOST_BANDS_EACH)
    charts = []
    for title, group in groups.items():
        axis = _axis(runs, group)
        charts.append(
            line_chart(
                title,
                _lines(runs, group, axis),
                x_label=AXIS_NAMES.get(axis, axis),
                size=size,
                num_buckets=num_buckets,
                num_bands=num_bands,
            )
        )
    return "\n".join(charts)


def _kind(name: str) -> str:
    """Return what a chart is called: the last word of a name, or the one before where that is a number."""
    before, _, last = name.rpartition("/")
    return before.rpartition("/")[2] if last.isdigit() and before else last or name


def _axis(runs: Sequence[ReportedRun], group: _Named) -> str:
    """Return the counter to draw against: the first that every series of the chart moves."""
    for counter in dict.fromkeys(name for run in runs for name in run.counter_names):
        if all(any(at.get(counter) for at in series.counters) for _, _, series in group):
            return counter
    return "opt_steps"


def _lines(runs: Sequence[ReportedRun], group: _Named, axis: str) -> list[Line]:
    """Colour by metric in the report of one run; by run, and dash by metric, in a comparison."""
    names = list(dict.fromkeys(name for _, name, _ in group))
    labels = run_labels(runs)
    lines = []
    for index, name, series in group:
        place = names.index(name)
        # A counter still at zero is left out of the records.
        points = sorted(
            zip((at.get(axis, 0) for at in series.counters), series.values, strict=True),
            key=lambda point: point[0],
        )
        before, _, last = name.rpartition("/")
        label = last if last.isdigit() and before else before or name
        if len(runs) > 1:
            label = f"{labels[index]} · {label}" if len(names) > 1 else labels[index]
        colour, dash = (index, place) if len(runs) > 1 else (place, place // NUM_COLOURS)
        lines.append(
            Line(
                label,
                [float(x) for x, _ in points],
                [y for _, y in points],
                colour % NUM_COLOURS,
                dash % NUM_DASHES,
                _best_point(runs[index], name, axis),
            )
        )
    return lines


def run_labels(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the name of each run, or its directory where two share a name."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else run.place for run in runs]


def _best_point(run: ReportedRun, metric: str, axis: str) -> tuple[float, float] | None:
    for best in run.all_bests:
        counters = mapping(best.get("counters"))
        score, at = number(best.get("score")), number(counters.get(axis, 0))
        if best.get("metric") != metric or not counters or score is None or at is None:
            continue
        return (at, score) if is_drawn(score) and 0 <= at < 1 << 63 else None
    return None


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
