"""Groups of runs: runs of one config with several seeds have the same `group` in run.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ludus.core.errors import LudusError
from ludus.store.note import read_note
from ludus.store.places import open_storage, runs_in

KEY = "group"
"""Key of run.json that holds the name of the run's group."""


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
        if group := note.get(KEY):
            yield group, seed if type(seed) is int else 0, place
