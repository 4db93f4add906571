"""A wide sum tree, to sample indices in proportion to priorities that change.

    top       one row of at most 4096 sums, searched as a whole
    sums      each the sum of the 16 below it
    leaves    one priority per index; 0 where there is nothing to sample

A parent is always recomputed as the sum of its children, never changed by a difference: rounding errors
cannot accumulate, and the tree follows bit for bit from the leaves alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import LudusError

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# A cumulative sum is slow along many short rows and fast along one long one: so the rows are short, the top
# is long, and a million leaves have three levels.
_FAN_OUT = 16
_TOP = 4096


class SumTree:
    """Non-negative numbers by index, with their sum, their minimum and a search by cumulative sum."""

    def __init__(self, capacity: int) -> None:
        self._sums: list[Floats] = []
        self._leasts: list[Floats] = []
        count = capacity
        while True:
            # Whole rows of children, so that every parent sums the same number of them.
            count = -(-count // _FAN_OUT) * _FAN_OUT
            self._sums.append(np.zeros(count))
            self._leasts.append(np.full(count, np.inf))
            if count <= _TOP:
                break
            count //= _FAN_OUT
        self._sum_rows = [level.reshape(-1, _FAN_OUT) for level in self._sums[:-1]]
        self._least_rows = [level.reshape(-1, _FAN_OUT) for level in self._leasts[:-1]]
        self.leaves = self._sums[0][:capacity]
        """The numbers themselves; read only, as parents must be updated with them."""
        self.total = 0.0
        """The sum of all leaves."""

    @property
    def minimum(self) -> float:
        """The smallest leaf that is not 0; infinite if all are 0."""
        return float(np.minimum.reduce(self._leasts[-1]))

    def set(self, places: Places, values: Floats) -> None:
        """Set the numbers at some indices; if an index occurs twice, the last value counts."""
        values = np.asarray(values, dtype=np.float64)
        # Written so that NaN, for which every comparison is false, is refused too.
        if values.size and not (values.min() >= 0 and values.max() < np.inf):
            wrong = values[~((values >= 0) & (values < np.inf))][0]
            raise LudusError(f"a priority is {wrong}; priorities are finite and 0 or more")
        self._sums[0][places] = values
        self._leasts[0][places] = np.where(values > 0, values, np.inf)
        for level, (sums, leasts) in enumerate(zip(self._sum_rows, self._least_rows, strict=True)):
            places = places // _FAN_OUT
            if len(sums) <= len(places):
                # If most rows have changed, reducing all of them in order is faster than gathering some.
                np.add.reduce(sums, axis=1, out=self._sums[level + 1][: len(sums)])
                np.minimum.reduce(leasts, axis=1, out=self._leasts[level + 1][: len(sums)])
            else:
                self._sums[level + 1][places] = np.add.reduce(sums.take(places, 0), axis=1)
                changed = np.minimum.reduce(leasts.take(places, 0), axis=1)
                self._leasts[level + 1][places] = changed
        self.total = float(np.add.reduce(self._sums[-1]))

    def rebuild(self, leaves: Floats) -> None:
        """Set the first leaves to these and all others to 0."""
        everything = np.zeros(len(self.leaves))
        everything[: len(leaves)] = leaves
        self.set(np.arange(len(everything)), everything)

    def find(self, prefix_sums: Floats) -> Places:
        """Return for each s the first index whose cumulative sum is above it; never one that holds 0.

        Each s is from 0 to below `total`; one that rounding put beyond it finds the last index.
        """
        if not self.total > 0:
            raise LudusError("every priority is 0, so nothing can be drawn; give some a priority")
        # A sum may differ from the cumulative sum of its children in the last bit. Kept below that
        # cumulative sum, a search ends at a child that adds to it, so at one that is not 0.
        running = np.add.accumulate(self._sums[-1])
        left = np.minimum(prefix_sums, np.nextafter(running[-1], 0.0))
        places: Places = running.searchsorted(left, "right")
        left = left - np.where(places > 0, running[places - 1], 0.0)
        starts = np.arange(0, len(left) * _FAN_OUT, _FAN_OUT)
        for rows in reversed(self._sum_rows):
            running = np.add.accumulate(rows.take(places, 0), axis=1)
            left = np.minimum(left, np.nextafter(running[:, -1], 0.0))
            child = (running > left[:, None]).argmax(axis=1)
            left = left - np.where(child > 0, running.take(starts + child - 1), 0.0)
            places = places * _FAN_OUT + child
        return places
