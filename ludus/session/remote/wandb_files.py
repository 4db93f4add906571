"""Read how far the files go that W&B keeps of a run, in which a killed process leaves only a part."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

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


def _steps(path: Path) -> Iterator[int]:
    from wandb.proto import wandb_internal_pb2

    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            yield record.history.step.num


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the whole records of a file in the format of LevelDB's log; a torn one at its end is left out."""
    place, pieces = _HEAD, b""
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
        pieces = piece if kind in (_FULL, _FIRST) else pieces + piece
        if kind in (_FULL, _LAST):
            yield pieces
