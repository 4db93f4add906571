"""Keyed records of effects outside the run: on disk before the effect, never cut back by a resume.

journals/<name>.jsonl   one line a record: {"key": ..., "record": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ludus.core.errors import StorageError
from ludus.store.storage import Storage, is_safe_name

JsonObject = dict[str, Any]
_MAX_RECORD = 1 << 19


class Journal:
    """Records by key, for a paid job or a person's label; the last record of a key counts.

    A stage that is run again after a kill asks for its key first, and does not pay twice:

        if (job := journal.get(key)) is None:
            journal.put(key, {"state": "asked"})     # durable before the effect
    """

    def __init__(self, storage: Storage, name: str) -> None:
        if not is_safe_name(name) or "/" in name:
            raise StorageError(
                f"{name[:40]!r} cannot name a journal; use letters, digits, '.', '_' and '-'"
            )
        self._file_name = f"journals/{name}.jsonl"
        self._storage = storage
        self._lines: dict[str, str] = {}
        # Opening it drops the half line that a kill may have left.
        self._file = storage.append(self._file_name)
        for number, line in enumerate(storage.lines(self._file_name), start=1):
            key, record = self._parsed(line, number)
            self._lines[key] = record

    def _parsed(self, line: bytes, number: int) -> tuple[str, str]:
        try:
            found = json.loads(line)
            key, record = found["key"], found["record"]
            is_whole = isinstance(key, str) and isinstance(record, dict)
        except (ValueError, RecursionError, KeyError, TypeError):
            is_whole = False
        if not is_whole:
            # To leave it out could have a job paid for twice.
            raise StorageError(
                f"line {number} of {self._file_name} is damaged; mend it by hand, or delete the line if"
                " its effect may happen again"
            )
        return key, json.dumps(record)

    def get(self, key: str) -> JsonObject | None:
        """Return a copy of the last record under this key, or None where there is none."""
        line = self._lines.get(key)
        record: JsonObject | None = None if line is None else json.loads(line)
        return record

    def keys(self) -> list[str]:
        """Return every key, in the order of their first records."""
        return list(self._lines)

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a record; when this returns it is durable, and when it raises nothing was kept."""
        try:
            text = json.dumps(dict(record), allow_nan=False)
            data = json.dumps({"key": key, "record": dict(record)}, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StorageError(
                f"the record of {key!r} cannot be written to {self._file_name} as JSON: {error}"
            ) from None
        if not isinstance(key, str) or json.loads(text) != dict(record):
            raise StorageError(
                f"the record of {key!r} would come back from {self._file_name} as something else; use"
                " text as keys, and lists in place of tuples"
            )
        if len(data) > _MAX_RECORD:
            raise StorageError(
                f"the record of {key!r} has {len(data)} bytes, a journal takes {_MAX_RECORD}; keep"
                " what is large in a file of its own and its name here"
            )
        self._storage.check_owned()
        self._file.add_durably(data + b"\n")
        self._lines[key] = text
