"""Record: the content of one write of the log, with counters, scalars, timing, texts and images."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ludus.core.counters import SHARED
from ludus.core.errors import LudusError, nearest


class UnknownMetric(LudusError, KeyError):
    """A record does not have the requested metric."""

    __str__ = Exception.__str__


FINEST = "finest"
"""Axis of a run that counts neither env_steps nor opt_steps: the finest counter that a loop moves."""
AXES = ("env_steps", "opt_steps", FINEST)


def axis_of(counters: Mapping[str, int]) -> str | None:
    """Return the axis to plot a run against, by the counters that have moved; None if none has."""
    for name in AXES:
        if counters.get(name):
            return name
    return FINEST if _finest(counters) else None


def _finest(counters: Mapping[str, int]) -> int:
    loops = [count for name, count in counters.items() if name not in ("examples", "tokens")]
    return max(loops, default=0)


@dataclass(frozen=True)
class Record:
    """Content of one write; every back end gets the same one."""

    counters: Mapping[str, int]
    scalars: Mapping[str, float]
    timing: Mapping[str, float] = field(default_factory=dict)
    """Rates and durations; they depend on the clock, so they are not reproducible."""
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    histograms: Mapping[str, Tensor] = field(default_factory=dict)
    images: Mapping[str, Tensor] = field(default_factory=dict)
    """Images as uint8 tensors of shape (channels, height, width)."""

    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The values that each scalar is the mean of, in order."""
    counter_names: Sequence[str] = SHARED
    """Every counter of the run, including those still at 0."""
    axis: str | None = None
    """Axis to plot the run against, the same in all its records; None uses this record's counters."""

    def aggregate(self, name: str) -> dict[str, float]:
        """Return min, max, mean and median of a scalar's values since the previous write."""
        values = self.values.get(name) or (self.scalars[name],)
        return {
            "min": min(values),
            "max": max(values),
            "mean": self.scalars[name],
            "median": statistics.median(values),
        }

    def flat(self) -> dict[str, float]:
        """Return all numbers by name: counters, scalars, and rates such as fps."""
        return {**self.counters, **self.scalars, **self.timing}

    def __getitem__(self, name: str) -> float:
        """Return the number of this name; raise UnknownMetric, listing the known names, if there is none."""
        numbers = self.flat()
        if name not in numbers:
            raise UnknownMetric(f"this record has no {name!r}.{nearest(str(name), numbers)}")
        return numbers[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the record has this number; those of an evaluation are not in every record."""
        return name in self.flat()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all numbers."""
        return iter(self.flat())

    def get(self, name: str, default: float | None = None) -> float | None:
        """Return the number of this name, or the default."""
        return self.flat().get(name, default)

    @property
    def step(self) -> int:
        """The x value of the record: env_steps, else opt_steps, else the finest counter that a loop moves."""
        axis = self.axis or axis_of(self.counters)
        return _finest(self.counters) if axis == FINEST else self.counters.get(axis or "", 0)
