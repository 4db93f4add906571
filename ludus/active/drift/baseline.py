"""A running baseline: whether a value is high compared with the values before it, itself excluded."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ludus.config.base import NonNegativeFloat, StrictConfig
from ludus.core import states


class BaselineConfig(StrictConfig):
    """The baseline that a value is compared with."""

    window: Annotated[int, Field(ge=2)]
    """Number of preceding values in the mean and standard deviation; there is no comparison until
    there are this many."""
    deviations: NonNegativeFloat
    """Number of standard deviations above the mean from which a value counts as high."""
    min_rise: NonNegativeFloat
    """The minimum rise above the mean as well, however small the standard deviation is."""


class Baseline:
    """The latest values, and whether the next one rises above them; a part.

    Mean and standard deviation exclude the value being tested. Included among n values, it could never be
    more than (n - 1) / sqrt(n) deviations from the mean, and a threshold above that would never be
    crossed. The deviation is that of a sample, with n - 1. Only a rise counts.
    """

    def __init__(self, config: BaselineConfig) -> None:
        self._config = config
        self._values: deque[float] = deque(maxlen=config.window)

    @property
    def values(self) -> list[float]:
        """The values that the next one is compared with, oldest first."""
        return list(self._values)

    @property
    def is_full(self) -> bool:
        """Whether there are enough values to compare the next one with."""
        return len(self._values) == self._config.window

    def update(self, value: float) -> bool:
        """Return whether a value is high; if it is not, add it to the baseline.

        A high value stays out of the baseline, or a lasting drift would soon become the norm.
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
        """Drop all values: the model has changed."""
        self._values.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "values")
        saved = states.rows(state, "values")
        if len(saved) > self._config.window:
            raise states.StateError("values", f"are more than the window of {self._config.window}")
        found = [states.real(saved, index) for index in range(len(saved))]
        self._values.clear()
        self._values.extend(found)
