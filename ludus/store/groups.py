"""Find runs by what a user calls them: a directory, a run's name below the root, or a group's name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, RunError
from ludus.store.directory import found_run, run_storage
from ludus.store.note import read_note
from ludus.store.places import below, is_url, open_storage, parted, runs_in

GROUP = "group"
"""Key of run.json: the name of the group that the run belongs to; runs outside a group lack it."""


ONLY_GROUP = "group:"
"""Beginning of a word that names a group, whatever runs are called."""
_SEED = "-seed"
SWEEP = "sweep"
"""Key of run.json: the name of the search that the run belongs to."""


def group_of(note: Mapping[str, Any]) -> str | None:
    """Return the group that run.json says the run belongs to."""
    name = note.get(GROUP)
    return name if isinstance(name, str) and name else None


def runs_called(word: str, root: str) -> list[str]:
    """Return the locations of the runs that a word names; raise RunError if there is none.

    A location comes first. A name that both a run below the root and a group have is refused: `group:NAME`
    is the group alone.
    """
    if word.startswith(ONLY_GROUP):
        if members := group_members(root, word.removeprefix(ONLY_GROUP)):
            return members
        raise RunError(f"no run in {root} belongs to a group '{word.removeprefix(ONLY_GROUP)}'")
    if is_url(word) or Path(word).exists():
        if not open_storage(word).exists("run.json") and (members := group_members(root, word)):
            return members
        return [word]
    members = group_members(root, word)
    run = below(root, word)
    is_run = "/" not in word and open_storage(run).exists("run.json")
    if is_run and members:
        raise RunError(
            f"'{word}' is both a run and a group of {len(members)} runs; write {run} for the run,"
            f" {ONLY_GROUP}{word} for the group"
        )
    if is_run or members:
        return [run] if is_run else members
    found_run(word)
    raise AssertionError("a run that is found has a location")


def member_name(group: str, seed: int) -> str:
    """Return the name of the run of a group that has this seed."""
    return f"{group}{_SEED}{seed}"


def free_name(root: str | Path, name: str) -> str:
    """Return the first of name, name-2, name-3 and so on that no run and no group of seeds has yet."""
    # Members are called after their group, so that the other runs need not be read: a root may be far away.
    grouped = [parted(place)[1].rpartition(_SEED)[0] for place in runs_in(root)]
    for number in itertools.count(1):
        free = name if number == 1 else f"{name}-{number}"
        if not run_storage(root, free).exists("run.json") and free not in grouped:
            return free
    raise AssertionError("counting does not end")


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
