"""Where iterators, generators that yield and open files stand, asked without advancing them."""

from __future__ import annotations

import itertools
import types
import warnings
from typing import Any

Opened = tuple[bytes, list[Any]]


def position(value: object) -> Any:
    """Return where an iterator stands, without advancing it."""
    if isinstance(value, itertools.count | itertools.repeat):
        return repr(value)
    with warnings.catch_warnings():
        # Python 3.12 and 3.13 warn that what itertools say of themselves will go.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return list(value.__reduce__()[1:])
        except TypeError:
            hint = getattr(type(value), "__length_hint__", None)
            return None if hint is None else hint(value)


def of_file(given: object) -> Opened | None:
    """Return where a file that is read stands; what is written to a file decides nothing."""
    value: Any = given
    if hasattr(value, "getvalue"):
        return b"at %d" % value.tell(), [value.getvalue()]
    if value.closed or value.writable() or not value.seekable():
        return None
    raw = getattr(value, "buffer", value)
    return b"at %d" % raw.tell(), []


def of_generator(value: types.GeneratorType[Any, Any, Any]) -> Opened:
    """Return where a generator that yields stands, and its local variables."""
    frame = value.gi_frame
    if frame is None:
        return b"ended", []
    return b"at %d" % frame.f_lasti, [dict(frame.f_locals), value.gi_yieldfrom]
