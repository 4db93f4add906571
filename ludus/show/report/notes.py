"""Section of a report on what could not be read, or was read in part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ludus.show.report.charts import text
from ludus.show.report.files import ReportedRun

_MOST_NAMES = 3


def notes(runs: Iterable[ReportedRun]) -> str:
    """Return the notes of all runs, each once with the names of the runs that have it."""
    found: dict[str, list[str]] = {}
    for run in runs:
        # A section may have read a file again that has a note already.
        for note in dict.fromkeys(run.notes):
            found.setdefault(note, []).append(run.name)
    lines = [f"{_listed(names)}: {note}" for note, names in found.items()]
    items = "".join(f'<p class="warn">{text(line)}</p>' for line in lines)
    return f'<div class="panel">{items}</div>' if items else ""


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {left} more" if left > 0 else "")
