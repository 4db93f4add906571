"""Accuracy against labels: a line per configuration, the mean over its seeds, and their range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ludus.active.report._kept import panel
from ludus.show.report.charts import NUM_COLOURS, NUM_DASHES, Line, line_chart, text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.show.report.groups import differing_keys, grouped, run_labels, shown_value
from ludus.show.report.scales import is_drawn

# The first of these that a run has is drawn.
_METRICS = ("test/accuracy", "validation/epoch_accuracy", "test/loss", "validation/epoch_loss")
_MOST_DIFFERENCES = 3

_Points = Mapping[int, float]
"""The measured value by number of labels."""


@dataclass(frozen=True)
class _Group:
    """Runs that differ only in their seed."""

    label: str
    runs: Sequence[tuple[str, _Points]]


def accuracy(runs: Sequence[ReportedRun]) -> Section | None:
    """Return the chart of all runs that count labels; None if none does."""
    learning = [run for run in runs if "labels" in run.counter_names]
    if not learning:
        return None
    found = next((name for name in _METRICS if any(_points(run, name) for run in learning)), None)
    if found is None:
        return Section("Accuracy against labels", panel("<p>No round was tested yet.</p>"))
    labels = dict(zip([run.place for run in runs], run_labels(runs), strict=True))
    groups = _groups(learning, labels, found)
    lines = [_line(group, place) for place, group in enumerate(groups)]
    chart = line_chart(
        f"{found} against labels", [line for line in lines if line.xs], x_label="labels"
    )
    notes = "".join(f"<p>{text(note)}</p>" for note in _notes(groups))
    word = "Accuracy" if "accuracy" in found else "Loss"
    return Section(f"{word} against labels", f'<div class="one">{chart}</div>' + panel(notes))


def _points(run: ReportedRun, metric: str) -> _Points:
    """Return the last finite value of a metric with each number of labels."""
    series = run.metrics.get(metric)
    if series is None:
        return {}
    pairs = zip(series.counters, series.values, strict=True)
    return {at["labels"]: value for at, value in pairs if at.get("labels") and is_drawn(value)}


def _groups(
    runs: Sequence[ReportedRun], labels: Mapping[str, str], metric: str
) -> Sequence[_Group]:
    """Group runs that differ only in the seed, named by what distinguishes the groups."""
    found = grouped(runs)
    configs = [one.configs[0] for one in found]
    names = _names(configs, [labels[runs[one.runs[0]].place] for one in found])
    return [
        _Group(
            name + (f" ({len(one.counted)} seeds)" if len(one.counted) > 1 else ""),
            [(labels[runs[index].place], _points(runs[index], metric)) for index in one.counted],
        )
        for name, one in zip(names, found, strict=True)
    ]


def _names(configs: Sequence[Mapping[str, object]], labels: Sequence[str]) -> Sequence[str]:
    """Return a name for each config: its strategy and the differing keys, or its run's if these are many."""
    differing = [path for path in differing_keys(configs) if not path.startswith("strategy.")]
    names = []
    for config, label in zip(configs, labels, strict=True):
        more = [f"{path} {shown_value(config, path)}" for path in differing[:_MOST_DIFFERENCES]]
        kind = config.get("strategy.kind")
        names.append(", ".join([str(kind), *more]) if kind else label)
    # If the names are ambiguous or cut short, the runs' own names are used.
    if len(set(names)) < len(names) or len(differing) > _MOST_DIFFERENCES:
        return [
            f"{label} · {config['strategy.kind']}" if config.get("strategy.kind") else label
            for config, label in zip(configs, labels, strict=True)
        ]
    return names


def _line(group: _Group, place: int) -> Line:
    """Return the mean over the runs with tests, at the points that all of them have."""
    tested = [points for _, points in group.runs if points]
    xs = sorted(set.intersection(*(set(points) for points in tested))) if tested else []
    values = [[points[x] for points in tested] for x in xs]
    has_range = len(tested) > 1
    return Line(
        group.label,
        [float(x) for x in xs],
        [sum(each) / len(each) for each in values],
        place % NUM_COLOURS,
        place // NUM_COLOURS % NUM_DASHES,
        lows=[min(each) for each in values] if has_range else (),
        highs=[max(each) for each in values] if has_range else (),
    )


def _notes(groups: Sequence[_Group]) -> Iterator[str]:
    if any(len(group.runs) > 1 for group in groups):
        yield "A line is the mean of its seeds; the area around it reaches from the lowest to the highest."
    for group in groups:
        ends = {label: max(points, default=0) for label, points in group.runs}
        for label, end in ends.items():
            if end < max(ends.values()):
                progress = f"was last tested with {end:,} labels" if end else "was not tested yet"
                yield f"{label} {progress}; the line of {group.label} goes as far as all of its tested runs."
