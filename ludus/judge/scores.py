"""Score: a metric to judge models by, its better direction, and what ends the run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ludus.core.errors import ConfigError
from ludus.judge.directions import Direction, direction_of

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Score:
    """One metric of an evaluation by which a model is judged; see `ludus/judge/directions.py`."""

    name: str
    """Name of the score: a role, such as host, or the thing judged."""
    metric: str
    """Metric of the evaluation that is compared."""
    direction: Direction | None = None
    """Whether lower (min) or higher (max) is better; None goes by the metric's name."""
    patience: int | None = None
    """Number of consecutive evaluations that may be no better; None for no limit."""
    min_delta: float = 0.0
    """Minimum improvement: for patience, only a value better than the peak by more than this is better."""
    target: float | None = None
    """The run ends at a value at least as good as this."""
    keeps_best: bool = True
    """Whether the weights of its best evaluation are saved."""
    keep: int = 1
    """Number of best models to keep; those after the best are the trainer's `runners_up`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"a score is named {self.name!r}; use lower-case letters, digits and '_', a letter first"
            )
        if self.direction not in ("min", "max", None):
            raise ConfigError(
                f"the direction of the score '{self.name}' is {self.direction!r}; give min or max"
            )
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"the patience of the score '{self.name}' must be 1 or more, or None")
        if not (math.isfinite(self.min_delta) and self.min_delta >= 0):
            raise ConfigError(f"the min_delta of the score '{self.name}' must be 0 or more")
        if self.keep < 1:
            raise ConfigError(
                f"the score '{self.name}' is to keep {self.keep} models; give 1 or more, or keeps_best=False"
            )
        if self.target is not None and not math.isfinite(self.target):
            raise ConfigError(f"the target of the score '{self.name}' must be finite, or None")
        object.__setattr__(self, "direction", direction_of(self.metric, self.direction))

    @property
    def mode(self) -> Direction:
        """The better direction."""
        return direction_of(self.metric, self.direction)

    def is_reached(self, value: float) -> bool:
        """Return whether this value is at least as good as the target."""
        if self.target is None or not math.isfinite(value):
            return False
        return value >= self.target if self.mode == "max" else value <= self.target

    def is_progress(self, value: float, peak: float | None) -> bool:
        """Return whether this value is better than the peak by more than min_delta."""
        margin = -self.min_delta if self.mode == "max" else self.min_delta
        return is_better(value + margin, peak, self.mode)


def is_better(value: float, best: float | None, direction: Direction) -> bool:
    """Return whether the value is finite and strictly better than the best so far."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best if direction == "max" else value < best
