"""Accuracy against labels: a line per configuration, the mean over its seeds, and their range."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.active.report._kept import panel
from ludus.show.report.charts import NUM_COLOURS, NUM_DASHES, Line, line_chart, text
from ludus.show.report.curves import run_labels
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun, mapping
from ludus.show.report.scales import is_drawn

# The first of these that a run has is drawn.
_METRICS = ("test/accuracy", "validation/epoch_accuracy", "test/loss", "validation/epoch_loss")
# The keys in which runs of one line may differ.
_FREE = ("seed", "experiment")
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
    by_config: dict[str, list[ReportedRun]] = {}
    for run in runs:
        config = {k: v for k, v in mapping(run.about.get("config")).items() if k not in _FREE}
        # A run without a recorded config is a group by itself.
        key = json.dumps(config, sort_keys=True, default=str) if config else run.place
        by_config.setdefault(key, []).append(run)
    flat = [dict(_flat(mapping(group[0].about.get("config")))) for group in by_config.values()]
    names = _names(flat, [labels[group[0].place] for group in by_config.values()])
    return [
        _Group(
            name + (f" ({len(group)} seeds)" if len(group) > 1 else ""),
            [(labels[run.place], _points(run, metric)) for run in group],
        )
        for name, group in zip(names, by_config.values(), strict=True)
    ]


def _names(configs: Sequence[Mapping[str, object]], labels: Sequence[str]) -> Sequence[str]:
    """Return a name for each config: its strategy and the differing keys, or its run's if these are many."""
    paths = dict.fromkeys(path for config in configs for path in config)
    differing = [
        path
        for path in paths
        if len({repr(config.get(path)) for config in configs}) > 1
        and path not in _FREE
        and not path.startswith("strategy.")
    ]
    names = []
    for config, label in zip(configs, labels, strict=True):
        more = [f"{path} {config.get(path)}" for path in differing[:_MOST_DIFFERENCES]]
        kind = config.get("strategy.kind")
        names.append(", ".join([str(kind), *more]) if kind else label)
    # If the names are ambiguous or cut short, the runs' own names are used.
    if len(set(names)) < len(names) or len(differing) > _MOST_DIFFERENCES:
        return [
            f"{label} · {config['strategy.kind']}" if config.get("strategy.kind") else label
            for config, label in zip(configs, labels, strict=True)
        ]
    return names


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


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
