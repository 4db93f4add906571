"""The schedule `one_cycle`: up to a peak and down again, once (Smith's 1cycle policy)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.schedule import ScheduleConfig, Value


class OneCycle(ScheduleConfig):
    """From the initial value up to the peak, then down to the final value, that of the last step."""

    kind: Literal["one_cycle"]
    """One cycle: rise to the peak, then fall to the final value."""
    peak: Value
    """The highest value, above the initial one."""
    final: Value
    """The value of the last step."""
    rising_share: Annotated[float, Field(gt=0, lt=1)]
    """The fraction of the steps that rise."""
    shape: Literal["cosine", "linear"]
    """Interpolate along half a cosine, or linearly."""
    three_phases: bool
    """Fall to the initial value in as many steps as it rose, and only then to the final value."""
    total_steps: Positive | None
    """The number of steps of the whole schedule; null means the whole run."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if three phases do not fit."""
        if self.three_phases and self.rising_share > 0.5:
            yield (
                f"'rising_share' is {self.rising_share:g}, but with 'three_phases' the fall takes as long as"
                " the rise; make it 0.5 or less"
            )

    def highest(self, initial: float) -> float:
        """Return the largest of the peak, the initial and the final value."""
        return max(initial, self.peak, self.final)


@register("schedule", "one_cycle")
class OneCycleSchedule:
    """Interpolates from value to value; each phase ends at its step."""

    Config = OneCycle

    def __init__(self, config: OneCycle, *, initial: float, num_steps: int) -> None:
        if config.peak <= initial:
            raise ConfigError(
                f"the 'peak' of one_cycle is {config.peak:g}, but it starts from {initial:g} and rises; make"
                " the peak higher, or the initial value lower"
            )
        rise, last = config.rising_share * num_steps - 1, num_steps - 1
        points = [(0.0, initial), (rise, config.peak)]
        if config.three_phases:
            points.append((2 * config.rising_share * num_steps - 2, initial))
        points.append((last, config.final))
        self._points = points
        self._is_cosine = config.shape == "cosine"

    def __call__(self, step: int) -> float:
        """Return the value at this step, interpolated between the ends of its phase."""
        (start, before), *phases = self._points
        for end, after in phases:
            if step <= end:
                done = (step - start) / (end - start) if end > start else 1.0
                if self._is_cosine:
                    done = 0.5 * (1 - math.cos(math.pi * done))
                return before + (after - before) * done
            start, before = end, after
        return before
