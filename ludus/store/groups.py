"""Find runs by what a user calls them: a directory, a run's name below the root, or a group's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, RunError
from ludus.store.directory import found_run
from ludus.store.note import read_note
from ludus.store.places import below, is_url, open_storage, runs_in

GROUP = "group"
"""Key of run.json: the name of the group that the run belongs to; runs outside a group lack it."""


def group_of(note: Mapping[str, Any]) -> str | None:
    """Return the group that run.json says the run belongs to."""
    name = note.get(GROUP)
    return name if isinstance(name, str) and name else None


def runs_called(word: str, root: str) -> list[str]:
    """Return the locations of the runs that a word names; raise RunError if there is none.

    A location comes first. A name that both a run below the root and a group have is refused.
    """
    if is_url(word) or Path(word).exists():
        if not open_storage(word).exists("run.json") and (members := _members(word, root)):
            return members
        return [word]
    members = _members(word, root)
    run = below(root, word)
    is_run = "/" not in word and open_storage(run).exists("run.json")
    if is_run and members:
        raise RunError(
            f"'{word}' is both a run and a group of {len(members)} runs; write {run} for the run, or list"
            " the group's runs"
        )
    if is_run or members:
        return [run] if is_run else members
    found_run(word)
    raise AssertionError("a run that is found has a location")


def _members(name: str, root: str) -> list[str]:
    """Return the runs of a group, sorted by seed; a damaged run belongs to none."""
    found = []
    for place in runs_in(root):
        try:
            note = read_note(open_storage(place))
        except (LudusError, OSError):
            continue
        if group_of(note) == name:
            seed = note.get("seed")
            found.append((seed if type(seed) is int else -1, place))
    return [place for _, place in sorted(found)]
