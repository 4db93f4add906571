"""Keys of a nested array dictionary: a name, or a tuple of names that leads into it."""

from __future__ import annotations

from typing import TypeAlias

from ludus.text.nested.leaves import NestedError

Key: TypeAlias = str | tuple[str, ...]
Path: TypeAlias = tuple[str, ...]


def as_path(key: object) -> Path:
    """Return a key as a tuple of names; raise NestedError if it is none."""
    path = (key,) if isinstance(key, str) else key
    if not isinstance(path, tuple) or not path or not all(isinstance(name, str) for name in path):
        raise NestedError(f"{key!r} is not a key; a key is a name or a tuple of names")
    for name in path:
        if not name.isascii() and not _is_unicode(name):
            raise NestedError(f"the key {key!r} holds a lone surrogate, which is not Unicode")
    return path


def is_key(index: object) -> bool:
    """Return whether an index is a key rather than a place in the batch."""
    return isinstance(index, str) or (
        isinstance(index, tuple) and bool(index) and all(isinstance(name, str) for name in index)
    )


def as_key(path: Path) -> Key:
    """Return a path as it is shown: a single name alone, else the tuple."""
    return path[0] if len(path) == 1 else path


def shown(path: Path) -> str:
    """Return a path as a message shows it."""
    return repr(as_key(path))


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
