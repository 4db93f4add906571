"""Group the metrics of one or several runs into charts, those of one kind on one chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ludus.config import families
from ludus.show.names import Parts, taken_apart
from ludus.show.report.band import Band
from ludus.show.report.chart_lines import PageCurves
from ludus.show.report.charts import NARROW, WIDE, bar_chart, line_chart
from ludus.show.report.files import ReportedRun
from ludus.show.report.groups import RunGroup
from ludus.show.report.looks import Drawn, Looks
from ludus.show.report.page_data import PageData

AXIS_NAMES = {
    "env_steps": "environment steps",
    "opt_steps": "optimiser steps",
    "epoch": "epochs",
    "iteration": "iterations",
    "seconds": "wall clock",
    "cpu_seconds": "CPU time",
}

# Together these limits keep a page of any number of charts near one megabyte.
_MOST_POINTS = 36_000
_MOST_BANDS = 1_600
_MOST_BUCKETS, _FEWEST_BUCKETS = 500, 20
_MOST_BANDS_EACH, _FEWEST_BANDS_EACH = 80, 8
_MOST_HISTOGRAMS = 60
_MOST_NUMBERS = 60_000
"""Values of all runs' curves, those that the script of a page draws again."""

_Groups = Mapping[str, Sequence[Drawn]]
"""Title of a chart -> its series."""


def page_curves(
    runs: Sequence[ReportedRun], groups: Sequence[RunGroup], band: Band = Band.STDERR
) -> PageCurves:
    """Return what makes the lines of a page; the more curves there are, the fewer points has each."""
    num_series = sum(len(run.metrics) + len(run.rates) for run in runs) or 1
    return PageCurves(runs, groups, band, _between(40, _MOST_NUMBERS // num_series, 400))


def metric_charts(page: PageCurves, data: PageData | None = None) -> str:
    """Return a chart for each kind of metric: train/loss and validation/loss share one.

    In the report of one run its agents share the chart, too; in a comparison each has its own.
    """
    runs = page.runs
    parts = taken_apart(name for run in runs for name in run.metrics)
    looks = Looks(list(parts.values()), len(page.groups))
    kinds: dict[str, list[Drawn]] = {}
    for index, run in enumerate(runs):
        for name, series in run.metrics.items():
            drawn = Drawn(index, [name], parts[name], series, group=page.group_of[index])
            kinds.setdefault(parts[name].kind, []).append(drawn)
    if looks.owners:
        groups = dict(_by_owners(kinds, looks, is_compared=page.is_compared))
    else:
        groups = kinds
    return _charts(page, _ordered(runs, groups, looks), looks, WIDE, data)


def rate_charts(page: PageCurves, data: PageData | None = None) -> str:
    """Return a chart for each rate in timing.jsonl."""
    groups: dict[str, list[Drawn]] = {}
    for index, run in enumerate(page.runs):
        for name, series in run.rates.items():
            parts = Parts("", "", name)
            drawn = Drawn(index, [name], parts, series, group=page.group_of[index])
            groups.setdefault(name, []).append(drawn)
    return _charts(page, groups, Looks([], len(page.groups)), NARROW, data)


def _by_owners(
    kinds: _Groups, looks: Looks, *, is_compared: bool
) -> Iterator[tuple[str, list[Drawn]]]:
    """Yield the charts of a page whose metrics have owners; in a comparison, one for each owner."""
    for kind, group in kinds.items():
        owned = _merged(group)
        if not is_compared:
            flat = [one for ones in owned for one in ones]
            yield kind, sorted(flat, key=looks.place)
            continue
        for ones in owned:
            ones.sort(key=lambda one: (one.run, *looks.place(one)))
            owner, same = ones[0].parts.owner, ones[0].same
            title = f"{kind} · {owner}" if owner else kind
            yield title + (f" (the same of {', '.join(same)})" if same else ""), ones


def _merged(group: Sequence[Drawn]) -> list[list[Drawn]]:
    """Return the series by owner, the whole first; an owner with identical values joins the earlier one."""
    owners = sorted(dict.fromkeys(one.parts.owner for one in group), key=bool)
    found: list[dict[tuple[int, str], Drawn]] = []
    for owner in owners:
        ones = {one.key: one for one in group if one.parts.owner == owner}
        for others in found:
            is_same = ones.keys() == others.keys() and all(
                one.series.is_same_as(others[key].series) for key, one in ones.items()
            )
            if is_same:
                for key, one in ones.items():
                    other = others[key]
                    names, same = [*other.names, *one.names], [*other.same, owner]
                    others[key] = replace(other, names=names, same=same)
                break
        else:
            found.append(ones)
    return [list(ones.values()) for ones in found]


def _ordered(runs: Sequence[ReportedRun], groups: _Groups, looks: Looks) -> _Groups:
    """Return the charts, the most important first."""
    best_names = {str(best.get("metric")) for run in runs for best in run.all_bests}
    scores = families.directions()

    def importance(group: Sequence[Drawn]) -> tuple[bool, bool, bool, int]:
        names = {name for one in group for name in one.names}
        is_score = group[0].parts.kind in scores and (bool(looks.owners) or not best_names)
        is_owned = is_score and all(one.parts.owner for one in group)
        return not names & best_names, not is_score, is_owned, -len(names)

    return dict(sorted(groups.items(), key=lambda item: importance(item[1])))


def histogram_charts(run: ReportedRun) -> str:
    """Return the last histogram of each name, for the first sixty names."""
    shown = list(run.histograms.items())[:_MOST_HISTOGRAMS]
    return "\n".join(bar_chart(name, found.edges, found.counts) for name, found in shown)


def _charts(
    page: PageCurves,
    groups: _Groups,
    looks: Looks,
    size: tuple[float, float],
    data: PageData | None,
) -> str:
    num_lines = sum(map(len, groups.values())) or 1
    num_buckets = _between(_FEWEST_BUCKETS, _MOST_POINTS // (2 * num_lines), _MOST_BUCKETS)
    num_bands = _between(_FEWEST_BANDS_EACH, _MOST_BANDS // num_lines, _MOST_BANDS_EACH)
    charts = []
    for title, group in groups.items():
        axis = page.axis(group)
        lines = page.lines(group, axis, looks)
        charts.append(
            line_chart(
                title,
                [one.line for one in lines],
                x_label=AXIS_NAMES.get(axis, axis),
                size=size,
                num_buckets=num_buckets,
                num_bands=num_bands,
                number=data.add(lines, axis, size) if data else None,
            )
        )
    return "\n".join(charts)


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
