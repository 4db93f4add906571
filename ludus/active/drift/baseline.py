"""Whether a value is high beside the values before it; it is never measured by itself."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ludus.config.base import NonNegativeFloat, StrictConfig
from ludus.core import states


class BaselineConfig(StrictConfig):
    """With what a value is compared."""

    window: Annotated[int, Field(ge=2)]
    """How many of the latest values before it the mean and standard deviation are taken over; it is
    compared with nothing until there are so many."""
    deviations: NonNegativeFloat
    """How many standard deviations above the mean a value must be to count as high."""
    min_rise: NonNegativeFloat
    """And by how much at least it must exceed the mean, however little the values before it differ."""


class Baseline:
    """A part: the latest values, and how far the next one rises above them.

    Mean and standard deviation are those of the values before the one that is looked at. With it among n
    values it could never be more than (n - 1) / sqrt(n) deviations from the mean, and a threshold above
    that would never be crossed. The deviation is that of a sample, with n - 1. Only a rise counts.
    """

    def __init__(self, config: BaselineConfig) -> None:
        self._config = config
        self._values: deque[float] = deque(maxlen=config.window)

    @property
    def values(self) -> list[float]:
        """The values that the next one is compared with, the oldest first."""
        return list(self._values)

    @property
    def is_full(self) -> bool:
        """Whether there are enough values to compare the next one with."""
        return len(self._values) == self._config.window

    def update(self, value: float) -> bool:
        """Return whether a value is high, and only then let it be one of those before the next.

        A high value stays out of the baseline, or a lasting drift would soon be the rule.
        """
        is_high = self._is_high(value)
        if not is_high:
            self._values.append(value)
        return is_high

    def _is_high(self, value: float) -> bool:
        if not self.is_full:
            return False
        count = len(self._values)
        mean = math.fsum(self._values) / count
        variance = math.fsum((one - mean) ** 2 for one in self._values) / (count - 1)
        rise = value - mean
        is_far = rise > self._config.deviations * math.sqrt(variance)
        return is_far and rise > self._config.min_rise

    def reset(self) -> None:
        """Forget all values: the model is another one."""
        self._values.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        states.check_keys(state, "values")
        saved = states.rows(state, "values")
        if len(saved) > self._config.window:
            raise states.StateError("values", f"are more than the window of {self._config.window}")
        found = [states.real(saved, index) for index in range(len(saved))]
        self._values.clear()
        self._values.extend(found)
