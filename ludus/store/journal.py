"""Journal: keyed records of effects outside the run, durable before the effect, never truncated by a resume.

journals/<name>.jsonl   one record per line: {"key": ..., "record": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ludus.core.errors import RunError, StorageError
from ludus.core.records import as_line, line_of
from ludus.store.storage import Growing, Storage, is_safe_name

JsonObject = dict[str, Any]


class Journal:
    """Records by key, for a paid job or a person's label; the last record of a key counts.

    A stage that is repeated after a kill looks up its key first, and does not pay twice:

        if (job := journal.get(key)) is None:
            journal.put(key, {"state": "asked"})     # durable before the effect

    Many small effects may share one fsync: `add` writes a record, which survives the end of this process,
    and `flush` makes all of them durable, so that they survive the end of the machine too.

    Reading changes no file, so the journal of a run that another process is writing may be read: half a
    line at its end is skipped. The first `put` removes such a half line, if a kill left one.
    """

    def __init__(
        self, storage: Storage, name: str, *, is_taken: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_taken` returns whether this process holds the run, so that records may be added."""
        if not is_safe_name(name) or "/" in name:
            raise StorageError(
                f"{name[:40]!r} cannot name a journal; use letters, digits, '.', '_' and '-'"
            )
        self._file_name = f"journals/{name}.jsonl"
        self._storage = storage
        self._is_taken = is_taken
        self._lines: dict[str, str] = {}
        self._size_read = 0
        """Size of the file when it was read."""
        self._is_own = False
        """Whether this process writes it, so that all its records are known."""
        self._read_again()

    def _read_again(self) -> None:
        """Reload the records if another process may have added some."""
        if self._is_own:
            return
        name = self._file_name
        size = self._storage.size(name) if self._storage.exists(name) else 0
        if size == self._size_read:
            return
        found = {}
        for number, line in enumerate(self._storage.lines(name), start=1):
            key, record = self._parsed(line, number)
            found[key] = record
        self._lines, self._size_read = found, size

    def _parsed(self, line: bytes, number: int) -> tuple[str, str]:
        try:
            found = json.loads(line)
            key, record = found["key"], found["record"]
            is_whole = isinstance(key, str) and isinstance(record, dict)
        except (ValueError, RecursionError, KeyError, TypeError):
            is_whole = False
        if not is_whole:
            # Skipping it could mean that a job is paid for twice.
            raise StorageError(
                f"line {number} of {self._file_name} is damaged; mend it by hand, or delete the line if"
                " its effect may happen again"
            )
        return key, json.dumps(record)

    def get(self, key: str) -> JsonObject | None:
        """Return a copy of the last record under this key, or None."""
        self._read_again()
        line = self._lines.get(key)
        record: JsonObject | None = None if line is None else json.loads(line)
        return record

    def keys(self) -> list[str]:
        """Return every key, in the order of their first records."""
        self._read_again()
        return list(self._lines)

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Append a record; when this returns it is durable, and when it raises nothing was written."""
        text, line = as_line(key, record, where=self._file_name)
        self._writable().add_durably(line)
        self._lines[key] = text

    def add(self, key: str, record: Mapping[str, Any] | str) -> None:
        """Append a record that `flush` makes durable, with all that were added before it.

        A text is the JSON of a mapping, from a caller that writes so many that a check would be dear.
        """
        if isinstance(record, str):
            text, line = record, line_of(key, record, where=self._file_name)
        else:
            text, line = as_line(key, record, where=self._file_name)
        self._writable().write(line)
        self._lines[key] = text

    def flush(self) -> None:
        """Make every record durable; may be called in another thread than `add`."""
        if not self._is_own:
            return
        file = self._storage.append(self._file_name)
        if not file.flush():
            raise StorageError(
                f"{self._storage.place}/{self._file_name} cannot be written: there is no space left"
            )
        file.sync()

    def release(self) -> None:
        """Make every record durable, and forget them and close the file until they are asked for again."""
        if self._is_own:
            self.flush()
            self._storage.release(self._file_name)
        self._lines, self._size_read, self._is_own = {}, 0, False

    def _writable(self) -> Growing:
        """Return the file, to be appended to, once all its records are known."""
        if not self._is_taken():
            raise RunError(
                f"{self._file_name} cannot be written before the run has begun or after it has ended; put"
                " the record in a stage or a hook"
            )
        self._storage.check_owned()
        file = self._storage.append(self._file_name)
        self._read_again()
        self._is_own = True
        return file
