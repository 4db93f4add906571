"""Read a part of a long log: evenly spaced records of each kind, and all records of rare kinds.

Two records are of one kind if their lines are equal but for the digits. Reading all lines of many long logs
would take most of the time of a page that shows a few hundred points of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ludus.store.files import open_plain

_BLOCK = 1 << 20
_DIGITS = b"0123456789.-+eE"
_NEWLINE = 10
_FEWEST_KEPT = 4_000
"""Records of a kind that are kept in any case, if there are as many."""


def sampled(path: Path, every: int) -> Iterator[list[bytes]]:
    """Yield lines of a log by blocks: about one of `every` of a frequent kind, all of a rare one.

    The last complete line is always among them.
    """
    num_blocks = max(1, path.stat().st_size // _BLOCK)
    last = b""
    with open_plain(path) as file:
        for block in _blocks(file):
            kept = _kept(block, every, num_blocks)
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
            starts = np.concatenate(([0], ends[:-1] + 1))
            bounds = zip(starts[kept].tolist(), ends[kept].tolist(), strict=True)
            yield [block[start:end] for start, end in bounds]
            last = b"" if kept[-1] == len(ends) - 1 else block[starts[-1] : ends[-1]]
    if last:
        yield [last]


def spread(path: Path, count: int) -> Iterator[list[bytes]]:
    """Yield about so many lines at evenly spaced places of a file, the first and the last among them."""
    size = path.stat().st_size
    lines = []
    with open_plain(path) as file:
        for at in range(count):
            file.seek(max(0, size * at // count - 1))
            if at:
                # The rest of a line that begins before.
                file.readline(_BLOCK)
            lines.append((file.tell(), file.readline(_BLOCK)))
        file.seek(max(0, size - (_BLOCK >> 4)))
        tail = file.read()
    whole = dict(line for line in lines if line[1].endswith(b"\n"))
    ended = tail[: tail.rfind(b"\n") + 1].splitlines()
    yield [*(line[:-1] for line in whole.values()), *ended[-1:]]


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the complete lines of a file in blocks; what has no end within a block is skipped."""
    rest = b""
    while data := file.read(_BLOCK):
        block = rest + data
        end = block.rfind(b"\n") + 1
        rest = block[end:] if len(block) - end < _BLOCK else b""
        block = block[:end]
        if block.startswith(b"\n") or b"\n\n" in block:
            block = b"".join(line for line in block.splitlines(keepends=True) if line.strip())
        if block:
            yield block


def _kept(block: bytes, every: int, num_blocks: int) -> NDArray[np.intp]:
    """Return the indices of the lines of a block to keep, in order."""
    letters = np.frombuffer(block.translate(None, _DIGITS), np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    # Equal lengths and equal sums of the letters: as good as comparing them, and much faster.
    sums = np.add.reduceat(letters, starts, dtype=np.uint32)
    _, kinds, counts = np.unique(
        (ends - starts << 32) + sums.astype(np.int64), return_inverse=True, return_counts=True
    )
    steps = np.clip(counts * num_blocks // _FEWEST_KEPT, 1, every)
    order = np.argsort(kinds, kind="stable")
    ranks = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[ranks % np.repeat(steps, counts) == 0])
