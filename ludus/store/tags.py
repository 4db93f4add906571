"""Tags of a run: words that people give it, in tags.json of its directory.

They are no part of the run: its own process never reads or writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ludus.core.errors import LudusError, RunError
from ludus.store.storage import Storage
from ludus.store.strict_json import dump_json, parse_json

NAME = "tags.json"
_TAG = re.compile(r"\w[\w.+-]{0,39}")
_MAX_BYTES = 1 << 16


def check_tag(tag: str) -> str:
    """Return the tag; raise LudusError unless it is a word."""
    if not _TAG.fullmatch(tag):
        shown = tag if len(tag) <= 40 else tag[:37] + "..."
        raise LudusError(
            f"{shown!r} cannot be a tag; use up to 40 letters, digits, '.', '_', '+' and '-', a letter or"
            " digit first"
        )
    return tag


def read_tags(storage: Storage) -> list[str]:
    """Return the tags of a run, sorted; raise RunError if their file is damaged."""
    if not storage.exists(NAME):
        return []
    place = f"{storage.place}/{NAME}"
    try:
        found = parse_json(storage.read(NAME, limit=_MAX_BYTES), source=place)
    except LudusError as error:
        raise RunError(f"{error}; delete it, and tag the run again") from None
    tags = found.get("tags") if isinstance(found, dict) else None
    if not isinstance(tags, list) or not all(
        isinstance(t, str) and _TAG.fullmatch(t) for t in tags
    ):
        raise RunError(f"{place} does not hold tags; delete it, and tag the run again")
    return sorted({*tags})


def change_tags(storage: Storage, add: Iterable[str] = (), drop: Iterable[str] = ()) -> list[str]:
    """Add and remove tags of a run, atomically, and return those that it has now."""
    before = read_tags(storage)
    after = sorted(({*before} | {*map(check_tag, add)}) - {*drop})
    if after != before:
        storage.write(NAME, dump_json({"tags": after}))
    return after
