"""Names that a key has elsewhere: in other libraries, in earlier files, in the seeds of the library."""

from __future__ import annotations

from collections.abc import Iterable

from ludus.config.families import Family, FormerValue, Hint, families
from ludus.config.registry import find
from ludus.core.errors import ConfigError


def other_names(key: str) -> Iterable[tuple[str, Hint | None]]:
    """Yield the keys here that a key of another library may mean, each with its package's hint."""
    for room in families():
        for name in room.other_names.get(key, ()):
            yield name, room.hint


def is_known_elsewhere(key: str) -> bool:
    """Return whether a name is a key of another library, so not a misspelt one of ours."""
    return any(key in room.other_names for room in families())


def is_former(key: str) -> bool:
    """Return whether a name is the last word of a key of an earlier version, in any family."""
    return any(key == old.split(".")[-1] for room in families() for old in room.former_names)


def earlier_names(key: str) -> Iterable[tuple[str, Hint | None]]:
    """Yield the current names of a key of earlier files, each with its package's hint."""
    for room in families():
        if key in room.earlier_names:
            yield room.earlier_names[key], room.hint


def former_paths(key: str, kind: object) -> list[str]:
    """Return the paths that a key of an earlier version may have now, in a config of this kind.

    The key is a path, or its last word unless that is a key of another library too.
    """
    names = [pair for room in _families_of(kind) for pair in room.former_names.items()]
    has_words = not is_known_elsewhere(key)
    found = [new for old, new in names if key == old or (has_words and key == old.split(".")[-1])]
    for path in found:
        # A key may have moved in several versions.
        found += [new for old, new in names if old == path and new not in found]
    return list(dict.fromkeys(found))


def former_value(key: str, kind: object) -> FormerValue | None:
    """Return the function that converts the values of a former key; None if they are the same today."""
    found = (room.former_values.get(key) for room in _families_of(kind))
    return next((one for one in found if one is not None), None)


def _families_of(kind: object) -> list[Family]:
    """Return the packages that declare the config of a trainer kind; all, if the kind is not known."""
    try:
        classes = find("trainer", str(kind)).Config.__mro__
    except ConfigError:
        return families()
    modules = [f"{one.__module__}." for one in classes]
    return [room for room in families() if any(one.startswith(f"{room.name}.") for one in modules)]
