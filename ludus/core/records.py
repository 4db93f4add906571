"""Encode journal records: a record must come back from JSON unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ludus.core.errors import StorageError

_MAX_RECORD = 1 << 19


def as_line(key: str, record: Mapping[str, Any], *, where: str) -> tuple[str, bytes]:
    """Return the record as JSON, and its line in the file; raise StorageError if JSON would change it."""
    try:
        text = json.dumps(dict(record), allow_nan=False)
        line = json.dumps({"key": key, "record": dict(record)}, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"the record of {key!r} cannot be written to {where} as JSON: {error}"
        ) from None
    if not isinstance(key, str) or json.loads(text) != dict(record):
        raise StorageError(
            f"the record of {key!r} would come back from {where} as something else; use text as keys,"
            " and lists in place of tuples"
        )
    return text, _bounded(key, line)


def line_of(key: str, text: str, *, where: str) -> bytes:
    """Return the line of a record that is given as JSON, without reading it again."""
    if not text.startswith("{") or "\n" in text:
        raise StorageError(f"the record of {key!r} cannot be written to {where}: it is no mapping")
    return _bounded(key, f'{{"key": {json.dumps(key)}, "record": {text}}}'.encode())


def _bounded(key: str, line: bytes) -> bytes:
    """Return the line with its end; raise StorageError if it is too long to be read back."""
    if len(line) > _MAX_RECORD:
        raise StorageError(
            f"the record of {key!r} has {len(line)} bytes, a journal takes {_MAX_RECORD}; keep what is"
            " large in a file of its own and its name here"
        )
    return line + b"\n"
