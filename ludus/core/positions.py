"""Positions of iterators, generators and open files, read without advancing them."""

from __future__ import annotations

import itertools
import types
import warnings
from typing import Any

Opened = tuple[bytes, list[Any]]


def position(value: object) -> Any:
    """Return the position of an iterator, without advancing it."""
    if isinstance(value, itertools.count | itertools.repeat):
        return repr(value)
    with warnings.catch_warnings():
        # Python 3.12 and 3.13 warn that `__reduce__` of itertools will be removed.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return list(value.__reduce__()[1:])
        except TypeError:
            hint = getattr(type(value), "__length_hint__", None)
            return None if hint is None else hint(value)


def of_file(given: object) -> Opened | None:
    """Return the position of a file open for reading; None for one being written, which affects nothing."""
    value: Any = given
    if hasattr(value, "getvalue"):
        return b"at %d" % value.tell(), [value.getvalue()]
    if value.closed or value.writable() or not value.seekable():
        return None
    raw = getattr(value, "buffer", value)
    return b"at %d" % raw.tell(), []


def of_generator(value: types.GeneratorType[Any, Any, Any]) -> Opened:
    """Return the position of a generator (one that yields) and its local variables."""
    frame = value.gi_frame
    if frame is None:
        return b"ended", []
    return b"at %d" % frame.f_lasti, [dict(frame.f_locals), value.gi_yieldfrom]
