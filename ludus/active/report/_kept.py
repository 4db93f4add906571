"""Shared by the sections: reading the records of a run, and reporting unreadable ones.

A record is a file that the run wrote and people may have edited, moved or lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from ludus.active.records import Record, read
from ludus.core.errors import LudusError
from ludus.show.report.charts import text
from ludus.show.report.curves import run_labels
from ludus.show.report.files import ReportedRun

R = TypeVar("R", bound=Record)


def numbered(run: ReportedRun, folder: str, pattern: str) -> list[str]:
    """Return the names of a run's files in a folder that match the pattern, sorted by their number."""
    found = [(re.fullmatch(pattern, name), name) for name in run.names(folder)]
    fitting = [(int(match[1]), name) for match, name in found if match is not None]
    return [f"{folder}/{name}" if folder else name for _, name in sorted(fitting)]


def some(names: Sequence[str], most: int) -> list[str]:
    """Return at most this many of the names, evenly spaced, including the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(at * (len(names) - 1) / (most - 1))] for at in range(most)]


def records(run: ReportedRun, kind: type[R], names: Sequence[str]) -> tuple[list[R], str]:
    """Return the records that can be read, and a sentence in HTML on each that cannot."""
    found, wrong = [], []
    for name in names:
        try:
            found.append(read(kind, run.read_json(name), source=name))
        except LudusError as error:
            wrong.append(f'<p class="warn">{text(error)}; it is left out here.</p>')
    return found, "".join(wrong)


def by_run(runs: Sequence[ReportedRun], bodies: Sequence[str]) -> str:
    """Return the body of a single run, or the bodies of several folded under their names."""
    if len(runs) == 1:
        return bodies[0]
    # What there is of one run alone is no comparison that would be long.
    fold = "<details open>" if sum(map(bool, bodies)) == 1 else "<details>"
    return "".join(
        f"{fold}<summary>{text(label)}</summary>{body}</details>"
        for label, body in zip(run_labels(runs), bodies, strict=True)
        if body
    )


def panel(body: str) -> str:
    """Return a body in a frame; nothing where it is empty."""
    return f'<div class="panel">{body}</div>' if body else ""
