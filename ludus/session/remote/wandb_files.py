"""Read how far the files go that W&B keeps of a run, in which a killed process leaves only a part."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEAD = 7
"""Bytes before the first block, and before each piece of a record: checksum, length, type."""
_BLOCK = 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def last_step(folder: Path, run_id: str) -> int:
    """Return the largest step in the files of this run; 0 if there is none."""
    files = sorted(folder.glob(f"wandb/*run-*/run-{run_id}.wandb"))
    return max((step for path in files for step in _steps(path)), default=0)


def mark_synced(folder: Path, run_id: str) -> None:
    """Mark the offline files of this run as `wandb sync` does, since the service has all that they hold."""
    for path in folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb"):
        path.with_name(f"{path.name}.synced").touch()


def is_complete(path: Path) -> bool:
    """Return whether the file of a run goes to its end; only the last blocks are read."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        begin = max(path.stat().st_size // _BLOCK - 1, 0) * _BLOCK
        file.seek(begin)
        data = file.read()
    return any(record.HasField("exit") for record in _parsed(data, is_begin=begin == 0))


def _steps(path: Path) -> Iterator[int]:
    for record in _parsed(path.read_bytes()):
        if record.HasField("history"):
            yield record.history.step.num


def _parsed(data: bytes, *, is_begin: bool = True) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    make_record: Any = getattr(wandb_internal_pb2, "Record")  # noqa: B009 - in no type stub
    for found in _records(data, is_begin=is_begin):
        record = make_record()
        record.ParseFromString(found)
        yield record


def _records(data: bytes, *, is_begin: bool = True) -> Iterator[bytes]:
    """Yield the whole records of a file in the format of LevelDB's log, or of its last blocks.

    A record of which a part is missing, at either end, is left out.
    """
    place, pieces = _HEAD if is_begin else 0, None
    while place + _HEAD <= len(data):
        # Where no head fits, a block ends in zeros.
        if (left := _BLOCK - place % _BLOCK) < _HEAD:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        place += _HEAD + length
        if place > len(data) or kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            return
        piece = data[place - length : place]
        if kind in (_FULL, _FIRST):
            pieces = piece
        elif pieces is not None:
            pieces += piece
        if kind in (_FULL, _LAST) and pieces is not None:
            yield pieces
            pieces = None
