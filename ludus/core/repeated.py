"""Check that a repeated query gives the same answer each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core.object_walker import digest_of


class Repeated:
    """Repeats a query at the 2nd, 4th, 8th look and so on, and compares its answer with the first."""

    def __init__(self, ask: Callable[[], Any] | None) -> None:
        """`ask` is the query; None disables the check."""
        self._ask = ask
        self._num_looks = 0
        self.digest: str | None = None
        """Digest of the first answer; None before `begin`."""
        self.has_changed = False

    def begin(self, digest: str) -> None:
        """Set the digest to compare with."""
        self.digest, self._num_looks = digest, 0

    def look(self) -> None:
        """Repeat the query if it is due."""
        self._num_looks += 1
        is_due = self._num_looks > 1 and self._num_looks & (self._num_looks - 1) == 0
        if is_due and self._ask is not None and self.digest is not None and not self.has_changed:
            self.has_changed = digest_of(self._ask()) != self.digest
