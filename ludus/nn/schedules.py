"""A schedule is a number that depends on the step alone: a learning rate, exploration and such."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from ludus.config.base import Count, Positive, PositiveFloat, StrictConfig
from ludus.config.sections import validate
from ludus.core import states
from ludus.core.errors import ConfigError

# No rate or share that is of use is higher; a step at such a rate might leave the numbers there are.
_HIGHEST = 1000.0

Rate = Annotated[float, Field(gt=0, le=1)]
Value = Annotated[float, Field(ge=0, le=_HIGHEST)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]


class Constant(StrictConfig):
    """The initial value throughout."""

    kind: Literal["constant"]
    """Stay at the initial value."""
    warmup_steps: Count
    """Linear warm-up from near zero to the initial value over this many steps."""


class Exponential(StrictConfig):
    """initial * rate^t + final * (1 - rate^t)."""

    kind: Literal["exponential"]
    """Exponential decay to the final value."""
    warmup_steps: Count
    """Linear warm-up from near zero to the initial value over this many steps."""
    rate: Rate
    """The decay rate: the share of the distance to the final value that remains after each step."""
    final: Value
    """The value approached."""


class Inverse(StrictConfig):
    """final + (initial - final) * rate / (initial * t + rate)."""

    kind: Literal["inverse"]
    """Inverse-time decay: fall as one over the step."""
    warmup_steps: Count
    """Linear warm-up from near zero to the initial value over this many steps."""
    rate: PositiveFloat
    """With final 0 the value is rate / (t + rate / initial): the larger, the slower it falls."""
    final: Value
    """The value approached."""


class Linear(StrictConfig):
    """A line from the initial to the final value, then the final value."""

    kind: Literal["linear"]
    """Linear interpolation to the final value."""
    warmup_steps: Count
    """Linear warm-up from near zero to the initial value over this many steps."""
    final: Value
    """The value at the end."""
    total_steps: Positive | None
    """How many steps the whole schedule takes, warm-up included; null means the whole run."""

    def problems(self) -> Iterator[str]:
        """Yield a warm-up that takes all of it."""
        yield from _all_warm_up(self.warmup_steps, self.total_steps)


class Cosine(StrictConfig):
    """Half a cosine from the initial to the final value, then the final value."""

    kind: Literal["cosine"]
    """Cosine annealing: go to the final value along half a cosine."""
    warmup_steps: Count
    """Linear warm-up from near zero to the initial value over this many steps."""
    final: Value
    """The value at the end."""
    total_steps: Positive | None
    """How many steps the whole schedule takes, warm-up included; null means the whole run."""

    def problems(self) -> Iterator[str]:
        """Yield a warm-up that takes all of it."""
        yield from _all_warm_up(self.warmup_steps, self.total_steps)


class Piecewise(StrictConfig):
    """Lines between given points, then the last value; the initial value is that of the first."""

    kind: Literal["piecewise"]
    """Piecewise-linear interpolation between the points."""
    warmup_steps: Count
    """Linear warm-up from near zero to the first value over this many steps; points come after."""
    points: Annotated[list[Point], Field(min_length=1)]
    """Pairs of a step and the value there; steps are whole numbers that rise from 0."""

    def problems(self) -> Iterator[str]:
        """Yield a line for each point that does not follow from the one before."""
        steps = [step for step, _ in self.points]
        if steps[0] != 0:
            yield f"points begin at step {steps[0]:g}; the first point is the value at step 0"
        for before, after in pairwise(steps):
            if after <= before:
                yield (
                    f"points go from step {before:g} to step {after:g}; give them in the order of"
                    " their steps, each step once"
                )
        for step, value in self.points:
            if step != int(step) or step < 0:
                yield f"points has step {step:g}; a step is a whole number from 0"
            if not 0 <= value <= _HIGHEST:
                yield f"points has the value {value:g} at step {step:g}; values are 0 to {_HIGHEST:g}"


def _all_warm_up(warmup_steps: int, total_steps: int | None) -> Iterator[str]:
    if total_steps is not None and warmup_steps >= total_steps:
        yield (
            f"'warmup_steps' is {warmup_steps}, which leaves nothing of 'total_steps' {total_steps};"
            " make it smaller"
        )


ScheduleSection = Annotated[
    Constant | Exponential | Inverse | Linear | Cosine | Piecewise, Field(discriminator="kind")
]


def too_long(schedule: Any, path: str, run_steps: int, unit: str) -> Iterator[str]:
    """Yield a sentence where a schedule's warm-up leaves nothing of the run; 0 steps are unknown."""
    if 0 < run_steps <= schedule.warmup_steps:
        yield (
            f"'{path}.warmup_steps' is {schedule.warmup_steps}, but the run has {run_steps} {unit}:"
            " the warm-up would never end; make it smaller, or the run longer"
        )


def highest(schedule: object, initial: float) -> float:
    """Return the highest value that a schedule comes to from this one."""
    points = [value for _, value in getattr(schedule, "points", ())]
    return float(max(initial, *points, getattr(schedule, "final", 0.0)))


class Schedule:
    """A function of the step, made from its config, the initial value and the length of the run."""

    def __init__(self, config: Any, *, initial: float, run_steps: int) -> None:
        self._config = config
        self._initial = initial
        # The most common one is asked at every step of some trainers, so it answers first.
        self._is_constant = config.kind == "constant" and config.warmup_steps == 0
        total = getattr(config, "total_steps", None)
        self._steps = max((total if total is not None else run_steps) - config.warmup_steps, 1)
        if config.kind == "piecewise" and config.points[0][1] != initial:
            raise ConfigError(
                f"the schedule's points begin at {config.points[0][1]:g}, but the value it belongs"
                f" to is {initial:g}; make them the same"
            )

    def __call__(self, step: int) -> float:
        """Return the value at this step; steps count from 0."""
        config, initial = self._config, self._initial
        if self._is_constant:
            return initial
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
            case "piecewise":
                return _between(config.points, step)
        done = min(step / self._steps, 1.0)
        share = 1 - done if config.kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return float(config.final + (initial - config.final) * share)

    @property
    def highest(self) -> float:
        """The highest value of the schedule."""
        return highest(self._config, self._initial)


class Scheduler(Schedule):
    """A schedule that keeps what you put into `data`: it is saved and comes back with the run.

    scheduler = Scheduler({"kind": "constant", "warmup_steps": 0}, initial=0.1, run_steps=1000)
    rate = scheduler(step)
    scheduler.data["best_step"] = 12
    """

    def __init__(
        self, config: StrictConfig | Mapping[str, Any], *, initial: float, run_steps: int
    ) -> None:
        if isinstance(config, Mapping):
            config = validate(_Read, {"schedule": dict(config)}, source="Scheduler").schedule
        super().__init__(config, initial=initial, run_steps=run_steps)
        self.data: dict[str, Any] = {}
        """Yours to fill, with numbers, text, lists, dicts, tensors and arrays."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the data; all else follows from the config."""
        return {"data": deepcopy(self.data)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the data in place, so that other references to the dict see it."""
        states.check_keys(state, "data")
        if not isinstance(state["data"], Mapping):
            raise states.StateError("data", f"is a {type(state['data']).__name__}, not a mapping")
        saved = deepcopy(dict(state["data"]))
        self.data.clear()
        self.data.update(saved)


class _Read(StrictConfig):
    """A schedule's section by itself, so that its mistakes are told as those of a file are."""

    schedule: ScheduleSection
    """The schedule."""


def _between(points: list[list[float]], step: int) -> float:
    """Return the value at a step, on the line between its two neighbours."""
    after = bisect_right(points, float(step), key=lambda point: point[0])
    if after == len(points):
        return float(points[-1][1])
    (start, low), (end, high) = points[after - 1], points[after]
    return float(low + (high - low) * (step - start) / (end - start))
