"""Whether what is asked again and again gives the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core.looking import digest_of


class Repeated:
    """Asks the same question at the 2nd, 4th, 8th look and so on, and compares the answer with the first."""

    def __init__(self, ask: Callable[[], Any] | None) -> None:
        """None asks nothing."""
        self._ask = ask
        self._num_looks = 0
        self.digest: str | None = None
        """What the first answer is known by; None before `begin`."""
        self.has_changed = False

    def begin(self, digest: str) -> None:
        """Compare with this from now on."""
        self.digest, self._num_looks = digest, 0

    def look(self) -> None:
        """Ask, if it is time."""
        self._num_looks += 1
        is_due = self._num_looks > 1 and self._num_looks & (self._num_looks - 1) == 0
        if is_due and self._ask is not None and self.digest is not None and not self.has_changed:
            self.has_changed = digest_of(self._ask()) != self.digest
