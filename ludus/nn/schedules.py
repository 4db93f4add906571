"""A schedule is a number that depends on the step alone: learning rates, exploration, and the like."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from ludus.config import Count, NonNegativeFloat, Positive, PositiveFloat, StrictConfig

Rate = Annotated[float, Field(gt=0, le=1)]


class Constant(StrictConfig):
    """The initial value throughout."""

    kind: Literal["constant"]
    """Stay at the initial value."""
    warmup_steps: Count
    """Rise in a line from near zero to the initial value over this many steps."""


class Exponential(StrictConfig):
    """initial * rate^t + final * (1 - rate^t)."""

    kind: Literal["exponential"]
    """Approach the final value by a constant factor a step."""
    warmup_steps: Count
    """Rise in a line from near zero to the initial value over this many steps."""
    rate: Rate
    """The share of the distance to the final value that remains after each step."""
    final: NonNegativeFloat
    """The value approached."""


class Inverse(StrictConfig):
    """final + (initial - final) * rate / (initial * t + rate)."""

    kind: Literal["inverse"]
    """Fall as one over the step."""
    warmup_steps: Count
    """Rise in a line from near zero to the initial value over this many steps."""
    rate: PositiveFloat
    """With final 0 the value is rate / (t + rate / initial): the larger, the slower it falls."""
    final: NonNegativeFloat
    """The value approached."""


class Linear(StrictConfig):
    """A line from the initial to the final value, then the final value."""

    kind: Literal["linear"]
    """Go to the final value in a line."""
    warmup_steps: Count
    """Rise in a line from near zero to the initial value over this many steps."""
    final: NonNegativeFloat
    """The value at the end."""
    total_steps: Positive | None
    """How many steps the whole schedule takes, warm-up included; null means the whole run."""


class Cosine(StrictConfig):
    """Half a cosine from the initial to the final value, then the final value."""

    kind: Literal["cosine"]
    """Go to the final value along half a cosine."""
    warmup_steps: Count
    """Rise in a line from near zero to the initial value over this many steps."""
    final: NonNegativeFloat
    """The value at the end."""
    total_steps: Positive | None
    """How many steps the whole schedule takes, warm-up included; null means the whole run."""


ScheduleSection = Annotated[
    Constant | Exponential | Inverse | Linear | Cosine, Field(discriminator="kind")
]


class Schedule:
    """A function of the step, made from its config, the initial value and the length of the run."""

    def __init__(self, config: Any, *, initial: float, run_steps: int) -> None:
        self._config = config
        self._initial = initial
        total = getattr(config, "total_steps", None)
        self._steps = max((total if total is not None else run_steps) - config.warmup_steps, 1)

    def __call__(self, step: int) -> float:
        """Return the value at this step; steps count from 0."""
        config, initial = self._config, self._initial
        if step < config.warmup_steps:
            return float(initial * (step + 1) / config.warmup_steps)
        step -= config.warmup_steps
        match config.kind:
            case "constant":
                return initial
            case "exponential":
                share = config.rate**step
                return float(initial * share + config.final * (1 - share))
            case "inverse":
                share = config.rate / (initial * step + config.rate)
                return float(config.final + (initial - config.final) * share)
        done = min(step / self._steps, 1.0)
        share = 1 - done if config.kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return float(config.final + (initial - config.final) * share)
