"""Shared by the sections: reading the records of a run, and reporting unreadable ones.

A record is a file that the run wrote and people may have edited, moved or lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pydantic import ValidationError

from ludus.active.records import RoundRecord
from ludus.core.errors import LudusError
from ludus.show.report.charts import text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.show.report.groups import run_labels

R = TypeVar("R", bound=RoundRecord)


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
            found.append(kind.model_validate(run.read_json(name)))
        except LudusError as error:
            wrong.append(str(error))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "it"
            wrong.append(f"{name} is not as the run wrote it: {where}: {first['msg']}")
    sentences = (f'<p class="warn">{text(one)}; it is left out here.</p>' for one in wrong)
    return found, "".join(sentences)


def section(
    title: str, runs: Sequence[ReportedRun], of_run: Callable[[ReportedRun], str], *, note: str = ""
) -> Section | None:
    """Return the body of a single run, or the bodies of several folded under their names; None if empty."""
    bodies = [of_run(run) for run in runs]
    if not any(bodies):
        return None
    if len(runs) == 1:
        return Section(title, note + bodies[0])
    # What there is of one run alone is no comparison that would be long.
    fold = "<details open>" if sum(map(bool, bodies)) == 1 else "<details>"
    folded = [
        f"{fold}<summary>{text(label)}</summary>{body}</details>"
        for label, body in zip(run_labels(runs), bodies, strict=True)
        if body
    ]
    return Section(title, note + "".join(folded))


def table(kind: str, titles: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table of this CSS class, of titles and rows in HTML."""
    head = "".join(f"<th>{title}</th>" for title in titles)
    whole = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table class="{kind}">{whole}</table>'


def panel(body: str) -> str:
    """Return a body in a frame; nothing where it is empty."""
    return f'<div class="panel">{body}</div>' if body else ""
