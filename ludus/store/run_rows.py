"""Status of each run below a root, from its files; a damaged run affects only its own row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, RunError
from ludus.store import directory
from ludus.store.bests import RUNNERS_UP
from ludus.store.checkpoint_files import peek
from ludus.store.groups import GROUP
from ludus.store.note import read_note
from ludus.store.places import open_storage, parted, runs_in
from ludus.store.run_config import current_config
from ludus.store.storage import Storage
from ludus.store.tags import read_tags

Row = dict[str, Any]


def rows_in(root: str | Path) -> list[Row]:
    """Return one row for every run below the root, the newest first."""
    rows = [_row(place) for place in runs_in(root)]
    rows.sort(key=lambda row: str(row["created"]), reverse=True)
    return rows


def summary(storage: Storage) -> Row:
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
        "best_mode": best.get("mode") if best else None,
        **({"more_bests": more} if (more := ending.get("more_bests")) else {}),
        **({RUNNERS_UP: runners} if (runners := ending.get(RUNNERS_UP)) else {}),
        "exact": ending.get("exact"),
        "inexact_because": ending.get("inexact_because", []),
    }


def config_of_row(row: Row) -> dict[str, Any]:
    """Return the config of a run as it is now; empty if it is damaged."""
    return current_config(open_storage(row["run_dir"]))


def _row(place: str) -> Row:
    """Return one row of the list; a damaged run is marked as such, with the reason."""
    row: Row = {"name": parted(place)[1], "kind": "?", "group": None, "seed": None, "created": ""}
    row |= {"tags": [], "run_dir": place}
    try:
        storage = directory.found_run(place)
        note = read_note(storage)
        seed = note.get("seed")
        row |= {"kind": note["kind"], "created": _created(note["created"])}
        row |= {"group": note.get(GROUP), "seed": seed if type(seed) is int else None}
        return row | {"tags": read_tags(storage)} | summary(storage)
    except (LudusError, OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error) if isinstance(error, LudusError) else f"run.json is damaged: {error!r}"
        row |= {"status": "damaged", "reason": reason, "counters": {}}
        return row | {"best_score": None, "best_metric": None, "best_mode": None, "exact": None}


def _created(text: str) -> str:
    """Return a date in UTC, so that dates sort as text."""
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
        # Years at either end of the calendar do not exist in every time zone.
        moment.astimezone()
    except (ValueError, OverflowError):
        raise RunError(f"run.json has an impossible date: {text[:40]!r}") from None
    return moment.isoformat()
