"""A log of an object store: it grows in a local file, and is put whole when it must be durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ludus.store.files import Append


class Spooled(Append):
    """A growing file whose durable form is an object; `put` replaces that object by these bytes."""

    def __init__(self, path: Path, put: Callable[[bytes], None], *, is_put: bool) -> None:
        super().__init__(path)
        self.path = path
        self._put = put
        self._length_put = self.offset if is_put else -1
        # An older length that is put after a newer one would lose what a journal has promised.
        self._order = threading.Lock()

    def sync(self) -> None:
        """Put the file as it is now, unless it has been."""
        with self._order:
            length = self.offset
            if length != self._length_put:
                self._put(self.path.read_bytes()[:length])
                self._length_put = length

    def add_durably(self, data: bytes) -> None:
        """Add the bytes and put the file; if that fails, raise and take them back."""
        with self._order:
            before = self.path.read_bytes()[: self.offset]
            self._put(before + self.backlog + data)
            super().add_durably(data)
            self._length_put = self.offset
