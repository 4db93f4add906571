"""List runs and their status: chosen, sorted, and fitted to the terminal."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ludus.cli.run_filters import RunTable
from ludus.config.overrides import MISSING
from ludus.show.counts import progress
from ludus.show.tables import print_table, terminal_width
from ludus.show.terminal import clean, pass_on, say
from ludus.store.run_rows import Row, rows_in, summary as summary
from ludus.store.strict_json import one_line

_GAP = 2
# Left out in this order where the terminal is narrow.
_LESS_NEEDED = ("exact", "started", "trainer", "group", "progress", "tags")


@dataclass(frozen=True)
class Wanted:
    """The runs that are meant, and their order."""

    words: Sequence[str] = ()
    """Names, and comparisons such as kind=ppo; a run has to meet all of them."""
    sort: str | None = None
    """A column, counter or config key; None for the newest first."""
    reverse: bool = False


def list_runs(root: str | Path, *, as_json: bool, wanted: Wanted | None = None) -> None:
    """Print one row for every run below the root, or for those that are wanted."""
    wanted = wanted or Wanted()
    table = chosen_runs(root, wanted)
    if as_json:
        pass_on(one_line({"root": str(root), "runs": table.rows}) + "\n")
    elif table.rows:
        print_runs(table)
    elif wanted.words:
        say(f"no run in {root} meets {' '.join(wanted.words)}; `ludus runs` lists all")
    else:
        say(f"no runs in {root}; `ludus train CONFIG` makes one")


def chosen_runs(root: str | Path, wanted: Wanted) -> RunTable:
    """Return the runs that are meant."""
    table = RunTable(rows_in(root))
    if wanted.sort is not None:
        table.sort(wanted.sort)
    table.choose(wanted.words)
    if wanted.reverse:
        table.rows.reverse()
    return table


def print_runs(runs: RunTable) -> None:
    """Print the runs as a table, as wide as the terminal is."""
    columns = _columns(runs)
    width = terminal_width()
    for name in (*_LESS_NEEDED, *runs.shown):
        if width is not None and name in columns and _width(columns) > width:
            del columns[name]
    table = Table(*map(clean, columns), box=None, pad_edge=False)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    print_table(table)
    for one in runs.rows:
        if one["status"] == "damaged":
            say(clean(f"{one['name']}: {one['reason']}"))


def _columns(runs: RunTable) -> dict[str, list[str]]:
    """Return the cells of each column, by its heading; columns that may be empty only if they are not."""
    rows = runs.rows
    cells = {
        "run": [row["name"] for row in rows],
        "group": [row["group"] or "" for row in rows],
        "trainer": [row["kind"] for row in rows],
        "status": [row["status"] for row in rows],
        "progress": [progress(row["counters"]) for row in rows],
        "best": [_best(row) for row in rows],
        **{key: [_cell(value) for value in runs.values(key)] for key in runs.shown},
        "tags": [", ".join(row["tags"]) for row in rows],
        "exact": ["" if row["exact"] is None else str(row["exact"]) for row in rows],
        "started": [_started(row["created"]) for row in rows],
    }
    found = {name: [clean(str(cell)) for cell in column] for name, column in cells.items()}
    return {name: c for name, c in found.items() if any(c) or name not in ("group", "tags")}


def _width(columns: dict[str, list[str]]) -> int:
    widest = [max(cell_len(cell) for cell in [name, *cells]) for name, cells in columns.items()]
    return sum(widest) + _GAP * len(widest)


def _best(row: Row) -> str:
    scores = [(row["best_metric"], row["best_score"])]
    scores += [(more["metric"], more["score"]) for more in row.get("more_bests", {}).values()]
    return ", ".join(f"{metric} {_score(score)}" for metric, score in scores if score is not None)


def _score(score: float) -> str:
    try:
        return f"{float(score):.5g}"
    except OverflowError:
        return "too large to show"


def _cell(value: object) -> str:
    if value is MISSING:
        return ""
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _started(created: str) -> str:
    if not created:
        return ""
    return datetime.datetime.fromisoformat(created).astimezone().strftime("%Y-%m-%d %H:%M")
