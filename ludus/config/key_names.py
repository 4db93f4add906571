"""Names that a key has elsewhere: in other libraries, in earlier files, in the seeds of the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ludus.config.families import Hint, families


def other_names(key: str) -> Iterable[tuple[str, Hint | None]]:
    """Yield the keys here that a key of another library may mean, each with its package's hint."""
    for room in families():
        for name in room.other_names.get(key, ()):
            yield name, room.hint


def is_known_elsewhere(key: str) -> bool:
    """Return whether a name is a key of another library, so not a misspelt one of ours."""
    return any(key in room.other_names for room in families())


def earlier_names(key: str) -> Iterable[tuple[str, Hint | None]]:
    """Yield the current names of a key of earlier files, each with its package's hint."""
    for room in families():
        if key in room.earlier_names:
            yield room.earlier_names[key], room.hint


def former_paths(key: str) -> Iterator[str]:
    """Yield the paths that a key of an earlier version, a path or its last word, may have now."""
    for room in families():
        names = room.former_names.items()
        yield from (new for old, new in names if key in (old, old.split(".")[-1]))
