"""The schedule `plateau`: the value is reduced each time a metric has stopped improving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ludus.config.base import Count, NonNegativeFloat, Positive
from ludus.config.registry import register
from ludus.core import states
from ludus.nn.schedule import Value, WarmedUp


class Plateau(WarmedUp):
    """The initial value times `factor` for each time that the metric stopped improving."""

    is_of_steps: ClassVar[bool] = False

    kind: Literal["plateau"]
    """Reduce on plateau: multiply by `factor` when a metric no longer improves."""
    metric: str
    """The metric to monitor: any that the run logs, such as validation/epoch_loss or an evaluator's score."""
    mode: Literal["min", "max"] | None
    """Whether lower (min) or higher (max) is better; null goes by the metric's name."""
    factor: Annotated[float, Field(gt=0, lt=1)]
    """The factor of each reduction."""
    patience: Positive
    """Reduce after this many values of the metric in a row without improvement."""
    min_delta: NonNegativeFloat
    """The metric has improved only if it is better by more than this."""
    cooldown: Count
    """The number of values of the metric after a reduction that do not count towards patience."""
    minimum: Value
    """The value is never reduced below this."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if the metric is empty."""
        if not self.metric.strip():
            yield "'metric' is empty; name a metric that the run logs"


@register("schedule", "plateau")
class PlateauSchedule:
    """Reduces the initial value; a part, with its record of the metric."""

    Config = Plateau

    def __init__(self, config: Plateau, *, initial: float, num_steps: int) -> None:
        self._config, self._initial = config, initial
        self.value = initial
        self.peak: float | None = None
        """The best value of the metric so far."""
        self.num_bad = 0
        """The number of values in a row without improvement."""
        self.num_cooling = 0
        """The number of further values that do not count."""

    def __call__(self, step: int) -> float:
        """Return the value after the last reduction."""
        return self.value

    def update(self, is_better: bool, value: float) -> bool:
        """Take the next value of the metric; return whether it caused a reduction."""
        config = self._config
        if is_better:
            self.peak, self.num_bad = value, 0
        else:
            self.num_bad += 1
        if self.num_cooling:
            self.num_cooling -= 1
            self.num_bad = 0
        if self.num_bad < config.patience:
            return False
        self.num_bad, self.num_cooling = 0, config.cooldown
        reduced = max(self.value * config.factor, min(config.minimum, self.value))
        is_reduced, self.value = reduced < self.value, reduced
        return is_reduced

    def state_dict(self) -> dict[str, Any]:
        """Return the value, and the record of the metric."""
        return {
            "value": self.value,
            "peak": self.peak,
            "num_bad": self.num_bad,
            "num_cooling": self.num_cooling,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        states.check_keys(state, "value", "peak", "num_bad", "num_cooling")
        value = states.number(state, "value", at_least=0.0)
        if value > self._initial:
            raise states.StateError("value", f"is {value:g}, above the initial {self._initial:g}")
        peak = None if state["peak"] is None else states.number(state, "peak")
        num_bad = states.whole(state, "num_bad", at_most=self._config.patience - 1)
        num_cooling = states.whole(state, "num_cooling", at_most=self._config.cooldown)
        self.value, self.peak, self.num_bad, self.num_cooling = value, peak, num_bad, num_cooling
