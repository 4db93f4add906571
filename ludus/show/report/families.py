"""Report sections of families: a file in a family's folder `report` is a section.

The file `duel.py` has a function `duel`, which is called with all runs of the page and returns a Section, or
several, or None if it has nothing to show. It is called for runs of every kind, so it checks for its own
files first.
`MARK = "duels.jsonl"` declares that a directory with that file can be reported although it is not a run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ludus.config import families
from ludus.core.errors import LudusError
from ludus.show.report.charts import text
from ludus.show.report.files import ReportedRun
from ludus.store.storage import Storage


@dataclass(frozen=True)
class Section:
    """A part of a page with its own title."""

    title: str
    body: str
    """HTML; recorded values appear in it only through `ludus.show.text`."""
    texts: Sequence[str] = ()
    """Names of the texts that it shows, so that the page does not repeat them."""


def family_sections(runs: Sequence[ReportedRun]) -> Iterator[Section]:
    """Yield the families' sections for these runs; one that fails is reported, and the page goes on."""
    for room in families.families():
        for name, module in room.modules("report").items():
            try:
                made = _made(name, module, runs)
            # One failing section must not lose the page, whatever a plugin or an edited file did.
            except Exception as error:
                reason = str(error)
                if not isinstance(error, LudusError):
                    reason = f"{type(error).__name__}{': ' if reason else ''}{reason}"
                said = text(f"The section '{name}' of {room.name} could not be made: {reason}.")
                made = [Section(name, f'<div class="panel"><p class="warn">{said}</p></div>')]
            yield from made


def is_marked(storage: Storage) -> bool:
    """Return whether a family can report a location that is not a run."""
    for room in families.families():
        for module in room.modules("report").values():
            try:
                mark = getattr(importlib.import_module(module), "MARK", None)
            # Its section reports the error.
            except Exception:
                continue
            if isinstance(mark, str) and storage.exists(mark):
                return True
    return False


def _made(name: str, module: str, runs: Sequence[ReportedRun]) -> list[Section]:
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise LudusError(f"{module} has no function '{name}'")
    made = function(runs)
    sections = list(made) if isinstance(made, list | tuple) else [made]
    for one in sections:
        if one is not None and not isinstance(one, Section):
            raise LudusError(f"'{name}' returned a {type(one).__name__}; return a Section or None")
    return [one for one in sections if one is not None]
