"""Class balance: the share of each class among the labels by round, and in the pool."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.active.records import QueryRecord
from ludus.active.report._kept import by_run, numbered, panel, records, some
from ludus.show.report.charts import text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun

_MOST_ROUNDS = 12
_MOST_CLASSES = 40


def balance(runs: Sequence[ReportedRun]) -> Section | None:
    """Return a table of shares for each run; None if no run has class labels."""
    bodies = [_of_run(run) for run in runs]
    return Section("Class balance of the labels", by_run(runs, bodies)) if any(bodies) else None


def _of_run(run: ReportedRun) -> str:
    names = some(numbered(run, "asked", r"round-(\d+)\.json"), _MOST_ROUNDS)
    # Unreadable records are reported in the section on queries.
    found = [one for one in records(run, QueryRecord, names)[0] if one.labelled_by_class]
    # A class unknown to a later round would have no column in the table.
    found = [
        one
        for one in found
        if len(one.labelled_by_class or ()) == len(found[-1].labelled_by_class or ())
    ]
    return panel(_table(found)) if found else ""


def _table(found: Sequence[QueryRecord]) -> str:
    last = found[-1]
    num_classes, names = len(last.labelled_by_class or ()), last.class_names
    if names is None or len(names) != num_classes:
        names = [str(at) for at in range(num_classes)]
    columns = [(f"round {one.round}", one.labelled_by_class or []) for one in found]
    if last.pool_by_class and len(last.pool_by_class) == num_classes:
        columns.append(("pool", last.pool_by_class))
    totals = [sum(counts) or 1 for _, counts in columns]
    most = max(
        counts[at] / total
        for (_, counts), total in zip(columns, totals, strict=True)
        for at in range(num_classes)
    )
    shown = range(min(num_classes, _MOST_CLASSES))
    rows = [
        _row(names[at], [counts[at] for _, counts in columns], totals, most or 1.0) for at in shown
    ]
    sizes = _row("labels", totals, None, 1.0)
    head = "".join(f"<th>{title}</th>" for title, _ in columns)
    left = num_classes - len(shown)
    more = f"<p>{left:,} further classes are left out.</p>" if left else ""
    table = f"<thead><tr><th>class</th>{head}</tr></thead><tbody>{''.join(rows)}{sizes}</tbody>"
    return f'<table class="shares">{table}</table>{more}'


def _row(name: str, counts: Sequence[int], totals: Sequence[int] | None, most: float) -> str:
    """Return a row of shares, darker if larger; without totals, the counts themselves."""
    if totals is None:
        cells = "".join(f"<td>{count:,}</td>" for count in counts)
    else:
        cells = "".join(
            f'<td style="--share:{count / total / most:.3f}" title="{count:,} of {total:,}">'
            f"{count / total:.0%}</td>"
            for count, total in zip(counts, totals, strict=True)
        )
    return f"<tr><th>{text(name)}</th>{cells}</tr>"
