"""A schedule is a number that depends on the step: a learning rate, an exploration rate and such."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, SerializeAsAny

from ludus.config.base import Count, StrictConfig
from ludus.config.registry import find
from ludus.config.sections import registered, validate
from ludus.core import states
from ludus.core.errors import LudusError

# No useful rate or fraction is higher; a step at such a learning rate might overflow.
HIGHEST = 1000.0

Value = Annotated[float, Field(ge=0, le=HIGHEST)]
OfStep = Callable[[int], float]
"""Returns a number for a step; steps count from 0."""


class ScheduleConfig(StrictConfig):
    """The config of a schedule; the Config of every registered schedule derives from it."""

    kind: str
    """The kind of schedule."""

    is_of_steps: ClassVar[bool] = True
    """Whether the value depends on the step alone, so that any setting can have this schedule."""

    def highest(self, initial: float) -> float:
        """Return the highest value of the schedule from this initial value; infinite if unknown."""
        return math.inf


class WarmedUp(ScheduleConfig):
    """The config of a schedule that can begin with a warm-up."""

    warmup_steps: Count
    """Linear warm-up from near zero to the initial value over this many steps."""

    def highest(self, initial: float) -> float:
        """Return the larger of the initial and the final value."""
        return float(max(initial, getattr(self, "final", 0.0)))


def _of_steps(config: ScheduleConfig) -> ScheduleConfig:
    if not config.is_of_steps:
        raise ValueError(
            f"is a schedule of kind {config.kind}, which only the learning rate of a supervised or an"
            " active run can have; choose one that depends on the step alone, such as cosine"
        )
    return config


_Registered = Annotated[SerializeAsAny[ScheduleConfig], registered("schedule")]
ScheduleSection = Annotated[_Registered, AfterValidator(_of_steps)]
LearningRateScheduleSection = _Registered
"""For trainers that also accept a schedule driven by a metric (plateau) or one given by a script."""


def too_long(schedule: ScheduleConfig, path: str, run_steps: int, unit: str) -> Iterator[str]:
    """Yield a problem if a schedule's warm-up takes the whole run; run_steps of 0 means unknown."""
    warmup_steps = getattr(schedule, "warmup_steps", 0)
    if 0 < run_steps <= warmup_steps:
        yield (
            f"'{path}.warmup_steps' is {warmup_steps}, but the run has {run_steps} {unit}:"
            " the warm-up would never end; make it smaller, or the run longer"
        )


def highest(schedule: ScheduleConfig, initial: float) -> float:
    """Return the highest value of a schedule from this initial value; infinite if unknown."""
    return schedule.highest(initial)


class Schedule:
    """A function of the step, built from its config, the initial value and the length of the run."""

    def __init__(
        self,
        config: ScheduleConfig,
        *,
        initial: float,
        run_steps: int,
        of_step: OfStep | None = None,
    ) -> None:
        """`of_step` is the trainer's function for a kind that does not depend on the step alone."""
        self._config = config
        self._initial = initial
        # The constant schedule is the most common, and called at every step of some trainers: a fast path.
        self._warmup_steps: int = getattr(config, "warmup_steps", 0)
        self._is_constant = config.kind == "constant" and self._warmup_steps == 0
        if of_step is None:
            total = getattr(config, "total_steps", None)
            steps = (run_steps if total is None else total) - self._warmup_steps
            kind = find("schedule", config.kind)
            of_step = kind(config, initial=initial, num_steps=max(steps, 1))
        self._of_step: OfStep = of_step
        is_own = not type(of_step).__module__.startswith("ludus.")
        self._is_checked = is_own or isinstance(of_step, Scaled)

    def __call__(self, step: int) -> float:
        """Return the value at this step; steps count from 0."""
        initial = self._initial
        if self._is_constant:
            return initial
        if step < self._warmup_steps:
            return float(initial * (step + 1) / self._warmup_steps)
        step -= self._warmup_steps
        value = float(self._of_step(step))
        if self._is_checked and not 0 <= value <= HIGHEST:
            raise LudusError(
                f"the schedule {self._config.kind} gave {value:g} at step {step}; a schedule gives"
                f" numbers from 0 to {HIGHEST:g}"
            )
        return value

    @property
    def highest(self) -> float:
        """The highest value of the schedule; infinite if unknown."""
        return highest(self._config, self._initial)


class Scaled:
    """The initial value times the factor that a script's function of the step returns."""

    def __init__(self, factor: OfStep, initial: float) -> None:
        self._factor, self._initial = factor, initial

    def __call__(self, step: int) -> float:
        factor = self._factor(step)
        try:
            return self._initial * float(factor)
        except (TypeError, ValueError):
            raise LudusError(
                f"the function given to set_schedule returned a {type(factor).__name__} at step {step};"
                " it returns a number, the factor of the learning rate"
            ) from None


class Scheduler(Schedule):
    """A schedule that keeps what you put into `data`: it is saved and comes back with the run.

    scheduler = Scheduler({"kind": "constant", "warmup_steps": 0}, initial=0.1, run_steps=1000)
    rate = scheduler(step)
    scheduler.data["best_step"] = 12
    """

    def __init__(
        self, config: ScheduleConfig | Mapping[str, Any], *, initial: float, run_steps: int
    ) -> None:
        if isinstance(config, Mapping):
            config = validate(
                _ScheduleAlone, {"schedule": dict(config)}, source="Scheduler"
            ).schedule
        super().__init__(config, initial=initial, run_steps=run_steps)
        self.data: dict[str, Any] = {}
        """Yours to fill with numbers, text, lists, dicts, tensors and arrays."""

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


class _ScheduleAlone(StrictConfig):
    """A schedule's config by itself, so that its mistakes are reported as those of a file are."""

    schedule: ScheduleSection
    """The schedule."""
