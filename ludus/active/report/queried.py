"""Queried examples: some of each round, as images or numbers, with their labels."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.active.records import Example, QueryRecord
from ludus.active.report._kept import by_run, numbered, panel, records, some
from ludus.show.report.charts import text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.show.report.scales import short_number

# Together these limit the images of a page to a few hundred kilobytes.
_MOST_ROUNDS, _FEWEST_ROUNDS = 12, 3
_MOST_ROUNDS_OF_ALL = 36


def queried(runs: Sequence[ReportedRun]) -> Section | None:
    """Return examples of the rounds of each run; None if no run has queries."""
    most = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, _MOST_ROUNDS_OF_ALL // len(runs)))
    bodies = [_of_run(run, most) for run in runs]
    return Section("What was queried", by_run(runs, bodies)) if any(bodies) else None


def _of_run(run: ReportedRun, most: int) -> str:
    names = numbered(run, "asked", r"round-(\d+)\.json")
    found, wrong = records(run, QueryRecord, some(names, most))
    left = len(names) - min(len(names), most)
    more = f"<p>{left:,} rounds between these are left out.</p>" if left else ""
    rounds = "".join(_round(asked) for asked in found)
    has_numbers = any(one.numbers for asked in found for one in asked.examples)
    # Two rounds of images fit next to each other; rows of numbers need the width.
    shown = rounds if has_numbers or not rounds else f'<div class="charts">{rounds}</div>'
    return shown + panel(wrong + more)


def _round(asked: QueryRecord) -> str:
    left = asked.num_asked - len(asked.examples)
    count = f"{asked.num_asked:,} example{'s' * (asked.num_asked != 1)}"
    first = f", the first {len(asked.examples)} of them" if left > 0 else ""
    head = f"<h3>Round {asked.round}: {count} by {text(asked.how)}{first}</h3>"
    has_numbers = any(one.numbers for one in asked.examples)
    shown = _table(asked) if has_numbers else _pictures(asked)
    return panel(head + shown)


def _pictures(asked: QueryRecord) -> str:
    """Return thumbnails with the label below each; for other examples, the row alone."""
    shown = []
    for one in asked.examples:
        name = f"row {one.row}"
        source = f"data:image/png;base64,{one.picture}"
        image = f'<img src="{source}" alt="{name}">' if one.picture else f"<code>{name}</code>"
        shown.append(f'<li title="{name}">{image}<b>{text(_answer(asked, one))}</b></li>')
    return f'<ul class="thumbs">{"".join(shown)}</ul>'


def _table(asked: QueryRecord) -> str:
    columns = next((one.columns for one in asked.examples if one.columns), None)
    width = max(len(one.numbers) for one in asked.examples)
    titles = ["row", "answer", *(columns or [f"x{at}" for at in range(width)])[:width]]
    has_more = any(one.num_more for one in asked.examples)
    rows = []
    for one in asked.examples:
        numbers = ["nan" if value is None else f"{value:,.4g}" for value in one.numbers]
        cells = [str(one.row), _answer(asked, one), *numbers, *[""] * (width - len(numbers))]
        if has_more:
            cells.append(f"and {one.num_more:,} more" if one.num_more else "")
        rows.append("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>")
    # A zero-width space lets a long column name break between its words.
    broken = [title.replace("_", "_\u200b") for title in [*titles, *[""] * has_more]]
    head = "".join(f"<th>{text(title)}</th>" for title in broken)
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table class="numbers">{table}</table>'


def _answer(asked: QueryRecord, one: Example) -> str:
    names = asked.class_names
    if names and isinstance(one.label, int) and 0 <= one.label < len(names):
        return names[one.label]
    return short_number(one.label)
