"""Save a ring of rows as immutable segments, so that a checkpoint writes only what is new.

Rows are numbered from the first ever pushed, and cut into pieces of `length` rows. The rows held:

    head (tensors) | piece | piece | ... | piece (segments, each written once) | tail (tensors)

So a state depends on the content alone, never on when it was saved before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError
from ludus.store.codec import Segment

# Pieces of this many rows or bytes, whichever is less, are long enough to be worth a file ...
_ROWS = 1024
_BYTES = 4 << 20
# ... but a full ring is never cut into more files than about this many.
_MAX_PIECES = 512


def piece_length(capacity: int, row_bytes: int) -> int:
    """Return the number of rows of a piece; it depends on the shape of the ring alone."""
    wanted = max(1, min(_ROWS, _BYTES // row_bytes))
    return min(capacity, max(wanted, -(-capacity // _MAX_PIECES)))


class RingPieces:
    """Saves the content of rings that advance together as pieces, and restores it in place.

    `rings` holds tensors of (capacity, ...), by name; row number n is at index n % capacity.
    """

    def __init__(self, rings: Mapping[str, Tensor], *, finite: bool = True) -> None:
        """`finite` says that a saved row with a non-finite number is damaged."""
        self._rings = dict(rings)
        self._finite = finite
        self._capacity = len(next(iter(self._rings.values())))
        row_bytes = sum(ring[0].nbytes for ring in self._rings.values())
        self.length = piece_length(self._capacity, row_bytes)
        self._made: dict[int, Segment] = {}

    def save(self, total: int) -> dict[str, Any]:
        """Return the rows held after `total` were pushed; only new pieces are copied."""
        head, pieces, tail = self._cuts(total)
        # Pieces that the ring has overwritten are dropped here.
        made = {number: self._made.get(number) for number in pieces}
        self._made = {
            number: segment if segment and not segment.is_lost else self._make(number)
            for number, segment in made.items()
        }
        return {
            "head": self._copy(*head),
            "pieces": list(self._made.values()),
            "tail": self._copy(*tail),
        }

    def check_capacity(self, state: Mapping[str, Any], name: str) -> None:
        """Raise CheckpointError unless a buffer of this name was saved with this capacity."""
        capacity = states.whole(state, "capacity")
        if capacity != self._capacity:
            raise CheckpointError(
                f"'{name}' was saved with a capacity of {capacity} and has {self._capacity} now;"
                f" resume with {capacity}"
            )

    def load(self, saved: Mapping[str, Any], total: int) -> None:
        """Restore what `save(total)` returned."""
        head, pieces, tail = self._cuts(total)
        states.check_keys(saved, "head", "pieces", "tail")
        segments = states.rows(saved, "pieces", length=len(pieces))
        for index, segment in enumerate(segments):
            if not isinstance(segment, Segment):
                raise states.StateError(f"pieces/{index}", f"is a {type(segment).__name__}")
        for key, (start, end) in (("head", head), ("tail", tail)):
            with states.within(key):
                self._check(saved[key], start, end)
        self._put(saved["head"], *head)
        self._put(saved["tail"], *tail)
        for number, segment in zip(pieces, segments, strict=True):
            start, end = number * self.length, (number + 1) * self.length
            tensors = segment.tensors
            with states.within(f"pieces/{number - pieces.start}"):
                self._check(tensors, start, end)
            self._put(tensors, start, end)
        self._made = dict(zip(pieces, segments, strict=True))

    def _cuts(self, total: int) -> tuple[tuple[int, int], range, tuple[int, int]]:
        """Return the bounds of the head, the numbers of the pieces, and the bounds of the tail."""
        start = max(0, total - self._capacity)
        first, last = -(-start // self.length), total // self.length
        head = (start, min(first * self.length, total))
        tail = (max(head[1], last * self.length), total)
        return head, range(first, last), tail

    def _make(self, number: int) -> Segment:
        return Segment.of(self._copy(number * self.length, (number + 1) * self.length))

    def _copy(self, start: int, end: int) -> dict[str, Tensor]:
        """Return copies, on the CPU, of a range of rows."""
        cut = self._places(start, end)
        return {
            name: torch.cat([ring[low:high] for low, high in cut]).cpu()
            for name, ring in self._rings.items()
        }

    def _check(self, tensors: Mapping[str, Tensor], start: int, end: int) -> None:
        """Raise StateError unless these are the rows of this range."""
        states.check_keys(tensors, *self._rings)
        for name, ring in self._rings.items():
            states.shaped(tensors, name, ring, (end - start, *ring.shape[1:]), finite=self._finite)

    def _put(self, tensors: Mapping[str, Tensor], start: int, end: int) -> None:
        cut = self._places(start, end)
        for name, ring in self._rings.items():
            rows, done = tensors[name], 0
            for low, high in cut:
                ring[low:high].copy_(rows[done : done + high - low])
                done += high - low

    def _places(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the one or two slices of the ring that hold these rows."""
        low = start % self._capacity
        high = low + end - start
        if high <= self._capacity:
            return [(low, high)]
        return [(low, self._capacity), (0, high - self._capacity)]
