"""Overlap: the log lines that a killed run wrote after its checkpoint, kept to compare a resume with them.

A resume truncates the logs. The lines it removes must be written again, byte for byte, by a run that
continues exactly. They are kept in overlap.json until the run has ended, so that a second kill loses none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ludus.core import states
from ludus.core.errors import CheckpointError, StorageError
from ludus.store.files import open_plain
from ludus.store.storage import Storage
from ludus.store.strict_json import dump_json, parse_json

NAME = "overlap.json"
METRICS, WEIGHTS = "metrics.jsonl", "weights.jsonl"
MAX_BYTES = 4 << 20
"""How much of each log is kept: its beginning, which is compared first."""
_MAX_FILE = 8 * MAX_BYTES
_MAX_LINE = 1 << 20


@dataclass(frozen=True)
class Tail:
    """Complete lines of a log, starting at this offset."""

    offset: int = 0
    text: bytes = b""

    @property
    def end(self) -> int:
        """Offset of the end."""
        return self.offset + len(self.text)

    def lines(self) -> list[bytes]:
        """Return the lines, each with its line end."""
        return self.text.splitlines(keepends=True)


def beyond(storage: Storage, name: str, offset: int) -> Tail:
    """Return the complete lines of a log after the offset, up to the first damaged one."""
    if not storage.exists(name):
        return Tail(offset)
    with storage.local(name) as path, open_plain(path) as file:
        file.seek(offset)
        text = file.read(MAX_BYTES)
    size = 0
    for line in text.splitlines(keepends=True):
        if not line.endswith(b"\n") or read_line(line) is None:
            break
        size += len(line)
    return Tail(offset, text[:size])


def last_line(storage: Storage, name: str, offset: int) -> dict[str, Any] | None:
    """Return the last record of a log before the offset."""
    if offset == 0 or not storage.exists(name):
        return None
    start = max(0, offset - _MAX_LINE)
    with storage.local(name) as path, open_plain(path) as file:
        file.seek(start)
        lines = file.read(offset - start).splitlines()
    return read_line(lines[-1]) if lines else None


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line; None if it is not a JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def joined(now: Tail, kept: Tail) -> tuple[Tail, tuple[bytes, bytes] | None]:
    """Return both tails as one that starts where `now` does, and the first pair of lines that differ.

    The pair is the line that was kept, then the one written in its place.
    """
    start = max(now.offset, kept.offset)
    new, old = now.text[start - now.offset :], kept.text[start - kept.offset :]
    if start > now.end or start > kept.end:
        return now, None
    for was, now_line in zip(old.splitlines(True), new.splitlines(True), strict=False):
        if was != now_line:
            return now, (was, now_line)
    longest = Tail(now.offset, now.text + old[len(new) :])
    return longest, None


def keep(storage: Storage, tails: Mapping[str, Tail]) -> None:
    """Save the tails atomically."""
    logs = {
        name: {"offset": tail.offset, "text": tail.text.decode("latin-1")}
        for name, tail in tails.items()
    }
    storage.write(NAME, dump_json({"format": 1, "logs": logs, "seal": _seal(logs)}))


def kept(storage: Storage, names: Iterable[str]) -> dict[str, Tail]:
    """Return the saved tails; raise StorageError if the file is damaged."""
    if not storage.exists(NAME):
        return {}
    problem = f"{storage.place}/{NAME} is damaged"
    try:
        saved = parse_json(storage.read(NAME, limit=_MAX_FILE), source=NAME)
        logs = saved["logs"]
        if saved["format"] != 1 or saved["seal"] != _seal(logs):
            raise StorageError(problem)
        return {name: _tail(logs[name]) for name in names if name in logs}
    except (CheckpointError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{problem}: {error}") from None


def _tail(entry: Mapping[str, Any]) -> Tail:
    return Tail(states.whole(entry, "offset"), states.text(entry, "text").encode("latin-1"))


def _seal(logs: object) -> str:
    return hashlib.sha256(dump_json(logs)).hexdigest()


def drop(storage: Storage) -> None:
    """Delete the saved tails."""
    if storage.exists(NAME):
        storage.remove(NAME)
