"""Assign a colour, and dashes or a mark, to each series of a page: no two of one chart look the same.

(There are eighty looks of lines and as many of dots; the series of a larger chart repeat them.)
If metrics belong to several agents, the report of one run has a colour for each agent, the same in all
charts, and dashes for training, evaluation or test. A comparison has a colour for each group of runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.show.names import Parts
from ludus.show.report.charts import NUM_COLOURS, NUM_DASHES
from ludus.show.report.series import Series
from ludus.show.report.strokes import NUM_MARKS

_LINES = ("train", "eval", "test")

Look = tuple[int, int]
"""Index of a colour, and index of a dash or mark."""


@dataclass(frozen=True)
class Drawn:
    """A series of a chart."""

    run: int
    """Index of its run on the page."""
    names: Sequence[str]
    """Names in the log; further names are metrics with the same values."""
    parts: Parts
    series: Series
    same: Sequence[str] = ()
    """Owners of the further names."""
    group: int = 0
    """Index of its run's group on the page."""

    @property
    def key(self) -> tuple[int, str]:
        """Its run and its name without the owner: series of different owners with the same key correspond."""
        words = self.names[0].split("/")
        return self.run, "/".join(word for word in words if word != self.parts.owner)


class Looks:
    """Assigns looks to the series of a page."""

    def __init__(self, parts: Sequence[Parts], num_groups: int) -> None:
        self._num_groups = num_groups
        self.owners = list(dict.fromkeys(part.owner for part in parts if part.owner))
        lines = {part.line for part in parts}
        self._lines = [line for line in _LINES if line in lines]

    def of_chart(self, group: Sequence[Drawn], are_dots: Sequence[bool]) -> list[Look]:
        """Return a look for each series of a chart; dots have marks instead of dashes."""
        names = list(dict.fromkeys(one.names[0] for one in group))
        owned = {(one.parts.owner, one.parts.line) for one in group}
        # Metrics without an owner, such as the shares of many classes, would all have one colour.
        is_by_owner = bool(self.owners) and (
            len(names) == len(owned) or any(one.parts.owner for one in group)
        )
        taken: set[tuple[bool, Look]] = set()
        looks = []
        for one, is_dots in zip(group, are_dots, strict=True):
            place = names.index(one.names[0])
            colour, dash = self._of_owner(one) if is_by_owner else self._of_place(one, place)
            num_patterns = NUM_MARKS if is_dots else NUM_DASHES
            first = 0 if is_dots else dash % num_patterns
            # Colour is the clearest sign, so it is varied last.
            colours = [(colour + more) % NUM_COLOURS for more in range(NUM_COLOURS)]
            patterns = [(first + more) % num_patterns for more in range(num_patterns)]
            choices = list(itertools.product(colours, patterns))
            free = (look for look in choices if (is_dots, look) not in taken)
            looks.append(next(free, choices[0]))
            taken.add((is_dots, looks[-1]))
        return looks

    def place(self, one: Drawn) -> tuple[int, int]:
        """Return the sort key of a series in a chart of one run: by its owner, the whole first."""
        owner = one.parts.owner
        place = 1 + self.owners.index(owner) if owner else 0
        return place, self._lines.index(one.parts.line)

    def _of_owner(self, one: Drawn) -> Look:
        owner, line = self.place(one)
        # The first colour is for the whole.
        colour = 1 + (owner - 1) % (NUM_COLOURS - 1) if owner else 0
        return (one.group if self._num_groups > 1 else colour), line

    def _of_place(self, one: Drawn, place: int) -> Look:
        return (one.group, place) if self._num_groups > 1 else (place, place // NUM_COLOURS)
