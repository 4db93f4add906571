"""What one write of the log holds: counters, scalars, and what goes with them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ludus.core.counters import SHARED


@dataclass(frozen=True)
class Record:
    """What one write holds; every back end gets the same one."""

    counters: Mapping[str, int]
    scalars: Mapping[str, float]
    timing: Mapping[str, float] = field(default_factory=dict)
    """Rates and durations: they depend on the clock, so they promise nothing."""
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    histograms: Mapping[str, Tensor] = field(default_factory=dict)
    images: Mapping[str, Tensor] = field(default_factory=dict)
    """Images as uint8 tensors of shape (channels, height, width)."""

    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What each scalar is the mean of, in the order it came."""
    counter_names: Sequence[str] = SHARED
    """Every counter of the run, also those that are still 0."""

    def aggregate(self, name: str) -> dict[str, float]:
        """Return min, max, mean and median of what a scalar was given since the write before."""
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
        """Return the number of this name."""
        return self.flat()[name]

    @property
    def step(self) -> int:
        """The counter to plot against: env_steps, else opt_steps, else the finest that a loop moves."""
        at = self.counters
        loops = [at[name] for name in at if name not in ("examples", "tokens")]
        return at.get("env_steps") or at.get("opt_steps") or max(loops, default=0)
