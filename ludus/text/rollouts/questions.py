"""The order of questions: each pass over a dataset is shuffled, and iterations see successive questions."""

from __future__ import annotations

from random import Random

from ludus.seeds import derive


class QuestionOrder:
    """An endless order of the questions of a dataset, which follows from (seed, name) alone."""

    def __init__(self, size: int, seed: int, name: str) -> None:
        self.size, self._seed, self._name = size, seed, name

    def take(self, number: int, count: int) -> list[int]:
        """Return the places of the questions of an iteration of `count`, by its number."""
        first = number * count
        found: list[int] = []
        while len(found) < count:
            turn, offset = divmod(first + len(found), self.size)
            found += self._pass(turn)[offset : offset + count - len(found)]
        return found

    def _pass(self, number: int) -> list[int]:
        order = list(range(self.size))
        Random(derive(self._seed, self._name, number)).shuffle(order)
        return order
