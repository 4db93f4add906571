"""The metrics of a run of text by their names in its logs: one table, by which the report reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ludus.show.report.files import number

NAMES = {
    "accuracy": "{split}/accuracy",
    "reward": "{split}/{agent}/reward",
    "tokens": "spent/{stage}/{agent}/{part}_tokens",
    "cost": "spent/{stage}/{agent}/cost",
}
"""Results, of metrics.jsonl, and spending, of timing.jsonl: sums since the start of the run."""

SECONDS = "seconds/{stage}"
"""Seconds of a stage of one iteration, in timing.jsonl."""

SPLITS = ("train", "test", "final_test")
_FIELDS = {"split": "|".join(SPLITS)}


class Figure(NamedTuple):
    """What the name of a metric says of it; a word that the name lacks is empty."""

    kind: str
    split: str = ""
    agent: str = ""
    stage: str = ""
    part: str = ""


def read_name(name: str) -> Figure | None:
    """Return what a metric is by its name; None for one that this section does not show."""
    for kind, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(name):
            return Figure(kind, **found.groupdict())
    return None


def stage_of(name: str) -> str | None:
    """Return the stage that a time in timing.jsonl is of; None for another number."""
    found = _SECONDS.fullmatch(name)
    return None if found is None else found["stage"]


class IterationFigures(NamedTuple):
    """The last value of each metric in one iteration."""

    number: int
    figures: Mapping[Figure, float]

    def total(self, kind: str, **which: str) -> float | None:
        """Return the sum of the figures of a kind with these words; None if there are none."""
        found = [
            value
            for figure, value in self.figures.items()
            if figure.kind == kind
            and all(getattr(figure, key) == word for key, word in which.items())
        ]
        return sum(found) if found else None


def iterations(lines: Iterable[Mapping[str, object]]) -> list[IterationFigures]:
    """Return the iterations in the lines of the logs, in order."""
    found: dict[int, dict[Figure, float]] = {}
    for line in lines:
        # A counter is left out of a line where it is 0.
        place = number(line.get("iteration", 0))
        if place is None or place != int(place):
            continue
        for name, value in line.items():
            figure, measured = read_name(name), number(value)
            if figure is not None and measured is not None:
                found.setdefault(int(place), {})[figure] = measured
    return [IterationFigures(place, found[place]) for place in sorted(found)]


def stage_seconds(lines: Iterable[Mapping[str, object]]) -> dict[str, float]:
    """Return the seconds spent in each stage, those of repeated iterations included."""
    found: dict[str, float] = {}
    for line in lines:
        for name, value in line.items():
            stage, seconds = stage_of(name), number(value)
            if stage is not None and seconds is not None:
                found[stage] = found.get(stage, 0.0) + seconds
    return found


def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of a name whose words in braces are any but `/`."""
    return re.compile(
        re.sub(
            r"\{(\w+)\}", lambda word: f"(?P<{word[1]}>{_FIELDS.get(word[1], '[^/]+')})", template
        )
    )


_PATTERNS = {kind: _pattern(template) for kind, template in NAMES.items()}
_SECONDS = _pattern(SECONDS)
