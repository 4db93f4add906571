"""Find runs by what a user calls them: a directory, a run's name below the root, or a group's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, RunError
from ludus.store.directory import found_run
from ludus.store.note import read_note
from ludus.store.places import below, is_url, open_storage, runs_in

GROUP = "group"
"""Key of run.json: the name of the group that the run belongs to; runs outside a group lack it."""


SWEEP = "sweep"
"""Key of run.json: the name of the search that the run belongs to."""


def group_of(note: Mapping[str, Any]) -> str | None:
    """Return the group that run.json says the run belongs to."""
    name = note.get(GROUP)
    return name if isinstance(name, str) and name else None


def runs_called(word: str, root: str) -> list[str]:
    """Return the locations of the runs that a word names; raise RunError if there is none.

    A location comes first. A name that both a run below the root and a group have is refused.
    """
    if is_url(word) or Path(word).exists():
        if not open_storage(word).exists("run.json") and (members := group_members(root, word)):
            return members
        return [word]
    members = group_members(root, word)
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


def group_members(root: str | Path, name: str) -> list[str]:
    """Return the location of every run below the root that belongs to this group, by seed.

    Empty if there is no such group; a run whose run.json is damaged belongs to none.
    """
    found = [(seed, place) for group, seed, place in _grouped(root) if group == name]
    return [place for _, place in sorted(found)]


def groups_in(root: str | Path) -> dict[str, list[str]]:
    """Return the members of every group below the root, by the group's name."""
    found: dict[str, list[str]] = {}
    for group, _, place in sorted(_grouped(root)):
        found.setdefault(group, []).append(place)
    return found


def _grouped(root: str | Path) -> Iterator[tuple[str, int, str]]:
    """Yield the group, the seed and the location of each run that has a group."""
    for place in runs_in(root):
        try:
            note = read_note(open_storage(place))
        except (LudusError, OSError):
            continue
        seed = note.get("seed")
        if group := group_of(note):
            yield group, seed if type(seed) is int else -1, place
