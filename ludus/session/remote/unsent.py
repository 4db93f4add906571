"""Lines that a service has not taken yet: the newest in memory, all others in metrics.jsonl."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection, Iterator

from ludus.session.record import Record, axis_of
from ludus.session.remote.log_line import LogLine, line_of, parsed
from ludus.store.storage import Storage

_LOG = "metrics.jsonl"
_MOST_IN_MEMORY = 200


class UnsentLines:
    """The lines of the log after the last one that was sent, in order; nothing is kept twice on disk.

    One thread adds, another takes.
    """

    def __init__(self, storage: Storage, *, counter_names: Collection[str]) -> None:
        self._storage, self._counter_names = storage, counter_names
        self.num_written = sum(1 for _ in self._lines())
        """Number of lines in the log, those of earlier processes included."""
        self._in_memory: deque[tuple[int, float, Record]] = deque()
        self._on_disk: Iterator[tuple[int, bytes]] = iter(())
        self._read_to = 0
        """Number of the last line that was read back."""

    def add(self, record: Record) -> None:
        """Add a record that was just appended to the log."""
        self._in_memory.append((self.num_written + 1, time.time(), record))
        if len(self._in_memory) > _MOST_IN_MEMORY:
            self._in_memory.popleft()
        self.num_written += 1

    def after(self, position: int, most: int) -> list[LogLine]:
        """Return up to `most` lines that follow this one."""
        while self._in_memory and self._in_memory[0][0] <= position:
            self._in_memory.popleft()
        # The other thread may drop the oldest at any time: what it dropped is read from the log.
        found = list(itertools.islice(self._in_memory.copy(), most))
        if found and found[0][0] == position + 1:
            self._on_disk = iter(())
            return [line_of(record, number, time=when) for number, when, record in found]
        return self._read(position, most) if position < self.num_written else []

    def _read(self, position: int, most: int) -> list[LogLine]:
        """Return lines from the log; the file is read once for all of them, not once for each call."""
        found = list(itertools.islice(self._on_disk, most)) if self._read_to == position else []
        if not found:
            # Only whole lines: a line may be half written beyond these.
            numbered = enumerate(itertools.islice(self._lines(), self.num_written), start=1)
            self._on_disk = itertools.islice(numbered, position, None)
            found = list(itertools.islice(self._on_disk, most))
        if not found:
            return []
        self._read_to = found[-1][0]
        now, names, axis = time.time(), self._counter_names, self._axis()
        return [
            parsed(data, number, time=now, counter_names=names, axis=axis) for number, data in found
        ]

    def _axis(self) -> str | None:
        """Return the axis of the run, which its first line with counters decides."""
        for number, data in enumerate(self._lines(), start=1):
            line = parsed(data, number, time=0.0, counter_names=self._counter_names, axis=None)
            if (axis := axis_of(line.counters)) is not None:
                return axis
        return None

    def _lines(self) -> Iterator[bytes]:
        return self._storage.lines(_LOG) if self._storage.exists(_LOG) else iter(())
