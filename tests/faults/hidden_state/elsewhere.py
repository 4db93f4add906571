"""A module of its own, with a global that others change, and a class that others hold."""

from __future__ import annotations

calls = 0


class Tally:
    def __init__(self) -> None:
        self.total = 0

    def add(self) -> int:
        self.total += 1
        return self.total
