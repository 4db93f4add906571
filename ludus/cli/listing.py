"""List runs and their status, from their files; a damaged run affects only its own row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ludus.core.errors import LudusError, RunError
from ludus.show.counts import progress
from ludus.show.tables import print_table
from ludus.show.terminal import clean, pass_on, say
from ludus.store import directory
from ludus.store.bests import RUNNERS_UP
from ludus.store.checkpoint_files import peek
from ludus.store.note import read_note
from ludus.store.places import parted, runs_in
from ludus.store.storage import Storage
from ludus.store.strict_json import one_line


def list_runs(root: str | Path, *, as_json: bool) -> None:
    """Print one row for every run below the root, the newest first."""
    rows = [_row(place) for place in runs_in(root)]
    rows.sort(key=lambda row: str(row["created"]), reverse=True)
    if as_json:
        pass_on(one_line({"root": str(root), "runs": rows}) + "\n")
    elif not rows:
        say(f"no runs in {root}; `ludus train CONFIG` makes one")
    else:
        _print_runs(rows)


def summary(storage: Storage) -> dict[str, Any]:
    """Return the status of one run: counters, best score, exactness."""
    # For a killed or running run the newest checkpoint is the source.
    ending = directory.last_ending(storage) or peek(storage)
    best = ending.get("best")
    status = "running" if storage.is_locked() else ending.get("event", "killed")
    return {
        "run_dir": storage.place,
        "status": status,
        "reason": ending.get("reason"),
        "counters": ending.get("counters", {}),
        "best_score": best["score"] if best else None,
        "best_metric": best["metric"] if best else None,
        **({"more_bests": more} if (more := ending.get("more_bests")) else {}),
        **({RUNNERS_UP: runners} if (runners := ending.get(RUNNERS_UP)) else {}),
        "exact": ending.get("exact"),
        "inexact_because": ending.get("inexact_because", []),
    }


def _row(place: str) -> dict[str, Any]:
    """Return one row of the list; a damaged run is marked as such, with the reason."""
    row: dict[str, Any] = {"name": parted(place)[1], "kind": "?", "created": "", "run_dir": place}
    try:
        storage = directory.found_run(place)
        note = read_note(storage)
        row |= {"kind": note["kind"], "created": _created(note["created"])}
        return row | summary(storage)
    except (LudusError, OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error) if isinstance(error, LudusError) else f"run.json is damaged: {error!r}"
        row |= {"status": "damaged", "reason": reason, "counters": {}}
        return row | {"best_score": None, "best_metric": None, "exact": None}


def _created(text: str) -> str:
    """Return a date in UTC, so that dates sort as text."""
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
        # Years at either end of the calendar do not exist in every time zone.
        moment.astimezone()
    except (ValueError, OverflowError):
        raise RunError(f"run.json has an impossible date: {text[:40]!r}") from None
    return moment.isoformat()


def _print_runs(rows: list[dict[str, Any]]) -> None:
    table = Table("run", "trainer", "status", "progress", "best", "exact", "started", box=None)
    for row in rows:
        scores = [(row["best_metric"], row["best_score"])]
        scores += [(more["metric"], more["score"]) for more in row.get("more_bests", {}).values()]
        found = ((metric, score) for metric, score in scores if score is not None)
        best = ", ".join(f"{metric} {_score(score)}" for metric, score in found)
        started = row["created"]
        if started:
            moment = datetime.datetime.fromisoformat(started).astimezone()
            started = moment.strftime("%Y-%m-%d %H:%M")
        exact = row["exact"] if row["exact"] is not None else ""
        cells = [row["name"], row["kind"], row["status"], progress(row["counters"])]
        table.add_row(*[Text(clean(str(cell))) for cell in [*cells, best, exact, started]])
    print_table(table)
    for row in rows:
        if row["status"] == "damaged":
            say(clean(f"{row['name']}: {row['reason']}"))


def _score(score: float) -> str:
    try:
        return f"{float(score):.5g}"
    except OverflowError:
        return "too large to show"
