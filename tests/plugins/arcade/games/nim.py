"""Take one to three sticks; who takes the last one wins."""

from __future__ import annotations

from typing import Literal

import ludus


@ludus.register("contest", "nim")
class Nim:
    """A heap of sticks."""

    class Config(ludus.StrictConfig):
        """What decides a game."""

        kind: Literal["nim"]
        """Always nim."""
        sticks: int
        """How many there are at first."""

    def __init__(self, config: Config) -> None:
        self.sticks = config.sticks

    def score(self, first: int, second: int) -> int:
        """Return the sign of who wins if each always takes as many."""
        left = self.sticks
        while True:
            for sign, taken in ((1, first), (-1, second)):
                left -= taken
                if left <= 0:
                    return sign
