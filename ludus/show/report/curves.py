"""Group the metrics of one or several runs into charts, those of one kind on one chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ludus.config import families
from ludus.show.names import Parts, taken_apart
from ludus.show.report.charts import NARROW, WIDE, Line, bar_chart, line_chart
from ludus.show.report.files import ReportedRun, mapping, number
from ludus.show.report.looks import Drawn, Looks
from ludus.show.report.scales import is_drawn

AXIS_NAMES = {
    "env_steps": "environment steps",
    "opt_steps": "optimiser steps",
    "epoch": "epochs",
    "iteration": "iterations",
}

# Together these limits keep a page of any number of charts near one megabyte.
_MOST_POINTS = 36_000
_MOST_BANDS = 1_600
_MOST_BUCKETS, _FEWEST_BUCKETS = 500, 20
_MOST_BANDS_EACH, _FEWEST_BANDS_EACH = 80, 8
_MOST_HISTOGRAMS = 60

_Groups = Mapping[str, Sequence[Drawn]]
"""Title of a chart -> its series."""


def metric_charts(runs: Sequence[ReportedRun]) -> str:
    """Return a chart for each kind of metric: train/loss and validation/loss share one.

    In the report of one run its agents share the chart, too; in a comparison each has its own.
    """
    parts = taken_apart(name for run in runs for name in run.metrics)
    looks = Looks(list(parts.values()), len(runs))
    kinds: dict[str, list[Drawn]] = {}
    for index, run in enumerate(runs):
        for name, series in run.metrics.items():
            drawn = Drawn(index, [name], parts[name], series)
            kinds.setdefault(parts[name].kind, []).append(drawn)
    if looks.owners:
        groups = dict(_by_owners(kinds, looks, is_compared=len(runs) > 1))
    else:
        groups = kinds
    return _charts(runs, _ordered(runs, groups, looks), looks, WIDE)


def rate_charts(runs: Sequence[ReportedRun]) -> str:
    """Return a chart for each rate in timing.jsonl."""
    groups: dict[str, list[Drawn]] = {}
    for index, run in enumerate(runs):
        for name, series in run.rates.items():
            drawn = Drawn(index, [name], Parts("", "", name), series)
            groups.setdefault(name, []).append(drawn)
    return _charts(runs, groups, Looks([], len(runs)), NARROW)


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
    runs: Sequence[ReportedRun], groups: _Groups, looks: Looks, size: tuple[float, float]
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
                _lines(runs, group, axis, looks),
                x_label=AXIS_NAMES.get(axis, axis),
                size=size,
                num_buckets=num_buckets,
                num_bands=num_bands,
            )
        )
    return "\n".join(charts)


def _axis(runs: Sequence[ReportedRun], group: Sequence[Drawn]) -> str:
    """Return the counter for the x axis: the first that every series of the chart moves."""
    for counter in dict.fromkeys(name for run in runs for name in run.counter_names):
        if all(any(at.get(counter) for at in one.series.counters) for one in group):
            return counter
    return "opt_steps"


def _lines(
    runs: Sequence[ReportedRun], group: Sequence[Drawn], axis: str, looks: Looks
) -> list[Line]:
    """Return the series of a chart against this counter, each with its look."""
    are_many = len({one.names[0] for one in group}) > 1
    labels = run_labels(runs)
    lines = []
    for one in group:
        # A counter still at zero is omitted from the records.
        points = sorted(
            zip((at.get(axis, 0) for at in one.series.counters), one.series.values, strict=True),
            key=lambda point: point[0],
        )
        label = _label(one, is_compared=len(runs) > 1)
        if len(runs) > 1:
            label = f"{labels[one.run]} · {label}" if are_many else labels[one.run]
        lines.append(
            Line(
                label,
                [float(x) for x, _ in points],
                [y for _, y in points],
                best=_best_point(runs[one.run], one.names, axis),
                is_points=_are_tests_at_ends(runs[one.run], one, axis),
                trend=sorted((float(at.get(axis, 0)), mean) for at, mean in one.series.means),
                num_left_out=sum(one.series.left_out),
            )
        )
    chosen = looks.of_chart(group, [line.is_dots for line in lines])
    return [
        replace(line, colour=colour, dash=dash)
        for line, (colour, dash) in zip(lines, chosen, strict=True)
    ]


def _label(one: Drawn, *, is_compared: bool) -> str:
    """Return the label of a series in its chart, whose title has the rest of its name."""
    split, owner = one.parts.split, one.parts.owner
    if is_compared and (owner or one.same):
        return split
    if owner or one.same:
        return ", ".join(f"{split}/{name}" if name else split for name in (owner, *one.same))
    before, _, last = one.names[0].rpartition("/")
    return last if last.isdigit() and before else before or one.names[0]


def _are_tests_at_ends(run: ReportedRun, one: Drawn, axis: str) -> bool:
    """Return whether these are final tests, repeated because the run was made longer."""
    ends = [mapping(end.get("counters")).get(axis, 0) for end in run.ends]
    places = [at.get(axis, 0) for at in one.series.counters]
    return one.parts.line == "test" and all(place in ends for place in places[:-1])


def run_labels(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the name of each run, or its directory if two share a name."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else run.place for run in runs]


def _best_point(run: ReportedRun, metrics: Sequence[str], axis: str) -> tuple[float, float] | None:
    for best in run.all_bests:
        counters = mapping(best.get("counters"))
        score, at = number(best.get("score")), number(counters.get(axis, 0))
        if best.get("metric") not in metrics or not counters or score is None or at is None:
            continue
        return (at, score) if is_drawn(score) and 0 <= at < 1 << 63 else None
    return None


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
