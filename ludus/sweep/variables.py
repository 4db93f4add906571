"""Keys that vary, by kind: a choice of values, a range of numbers, by their logarithm or not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from types import ModuleType
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from ludus.config.base import Positive, PositiveFloat, StrictConfig

Value = Any
"""A value of a key, as a config file holds it."""
Label = bool | int | float | str | None
"""A value as Optuna has it, which takes no lists and sections."""
Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""A whole number that a float holds exactly: samplers calculate with floats."""
_MAX_STEPS = 1_000_000
When = dict[str, Annotated[list[Any], Field(min_length=1)]] | None


class Suggests(Protocol):
    """Chooses values: a trial of Optuna, or whatever stands for one."""

    def suggest_categorical(self, name: str, choices: Sequence[Label], /) -> Label: ...
    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float: ...
    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int: ...


class Varied(StrictConfig):
    """A key that varies."""

    when: When
    """Keys that are chosen before, each with the values under which this one varies; else it stays as it is;
    null: it always varies."""

    def draw(self, name: str, trial: Suggests) -> Value:
        """Return the value that a trial takes."""
        raise NotImplementedError

    def label(self, value: Value) -> Label:
        """Return what stands for a value in Optuna."""
        found: Label = value
        return found

    def distribution(self, distributions: ModuleType) -> Any:
        """Return the distribution of Optuna, from its module `distributions`."""
        raise NotImplementedError

    def grid(self) -> Sequence[Value] | None:
        """Return all values, in order; None if they are not countable."""
        return None

    def extremes(self) -> Sequence[Value]:
        """Return values by which the key's type and limits are checked before any work."""
        raise NotImplementedError

    def perturbed(self, value: Value, factor: float) -> Value:
        """Return a value times a factor, within the limits; of a choice the next value, or the one before."""
        raise NotImplementedError


class Choice(Varied):
    """One of several values, of any type; a section is chosen whole."""

    kind: Literal["choice"]
    """Always choice."""
    values: Annotated[list[Any], Field(min_length=1)]
    """The values to choose from."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the values."""
        try:
            texts = [json.dumps(value, sort_keys=True) for value in self.values]
        except (TypeError, ValueError):
            yield "'values' holds what a config file cannot; give numbers, texts, null, lists or sections"
            return
        if twice := [text for text in texts if texts.count(text) > 1]:
            yield f"'values' holds {twice[0]} twice; name each value once"

    def labels(self) -> list[Label]:
        """Return what stands for each value: itself where Optuna takes it, else its JSON."""
        is_plain = all(isinstance(value, bool | int | float | str | None) for value in self.values)
        # To Optuna, as to Python, True is 1 and 1.0 is 1.
        are_apart = all(one != two for i, one in enumerate(self.values) for two in self.values[:i])
        if is_plain and are_apart:
            return list(self.values)
        return [json.dumps(value, sort_keys=True) for value in self.values]

    def draw(self, name: str, trial: Suggests) -> Value:
        labels = self.labels()
        return self.values[labels.index(trial.suggest_categorical(name, labels))]

    def label(self, value: Value) -> Label:
        return self.labels()[_place(value, self.values)]

    def distribution(self, distributions: ModuleType) -> Any:
        return distributions.CategoricalDistribution(self.labels())

    def grid(self) -> Sequence[Value]:
        return self.values

    def extremes(self) -> Sequence[Value]:
        return self.values

    def perturbed(self, value: Value, factor: float) -> Value:
        place = _place(value, self.values) + (factor > 1) - (factor < 1)
        return self.values[min(max(place, 0), len(self.values) - 1)]


class Range(Varied):
    """A number between two others."""

    kind: Literal["range"]
    """Always range."""
    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    step: PositiveFloat | None
    """The distance between two values; null: any value between."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the limits."""
        yield from _limits(self.low, self.high)
        if self.step is None or self.low >= self.high:
            return
        if (self.high - self.low) / self.step > _MAX_STEPS:
            yield (
                f"'step' is {self.step:g}, which makes more than {_MAX_STEPS} values from {self.low:g} to"
                f" {self.high:g}; give a larger step, or null for any value between"
            )
        else:
            yield from _whole_steps(self.low, self.high, self.step)

    def draw(self, name: str, trial: Suggests) -> float:
        return trial.suggest_float(name, self.low, self.high, step=self.step)

    def distribution(self, distributions: ModuleType) -> Any:
        return distributions.FloatDistribution(self.low, self.high, step=self.step)

    def grid(self) -> Sequence[float] | None:
        if self.step is None:
            return None
        low, high, step = (Decimal(str(one)) for one in (self.low, self.high, self.step))
        return [float(low + index * step) for index in range(int((high - low) / step) + 1)]

    def extremes(self) -> Sequence[float]:
        return [self.low, self.high]

    def perturbed(self, value: Value, factor: float) -> float:
        if self.step is None:
            return float(min(max(value * factor, self.low), self.high))
        place = _moved(value, factor, low=self.low, high=self.high, step=self.step)
        return float(Decimal(str(self.low)) + place * Decimal(str(self.step)))


class LogRange(Varied):
    """A number between two others, by its logarithm: as many below as above their geometric mean."""

    kind: Literal["log_range"]
    """Always log_range."""
    low: float
    """The smallest value, above 0."""
    high: float
    """The largest value."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the limits."""
        yield from _limits(self.low, self.high)
        if self.low <= 0:
            yield f"'low' is {self.low:g}; a logarithm needs a number above 0"

    def draw(self, name: str, trial: Suggests) -> float:
        return trial.suggest_float(name, self.low, self.high, log=True)

    def distribution(self, distributions: ModuleType) -> Any:
        return distributions.FloatDistribution(self.low, self.high, log=True)

    def extremes(self) -> Sequence[float]:
        return [self.low, self.high]

    def perturbed(self, value: Value, factor: float) -> float:
        return float(min(max(value * factor, self.low), self.high))


class IntRange(Varied):
    """A whole number between two others."""

    kind: Literal["int_range"]
    """Always int_range."""
    low: Whole
    """The smallest value."""
    high: Whole
    """The largest value."""
    step: Positive
    """The distance between two values."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the limits."""
        yield from _limits(self.low, self.high)
        if self.low < self.high:
            yield from _whole_steps(self.low, self.high, self.step)

    def draw(self, name: str, trial: Suggests) -> int:
        return trial.suggest_int(name, self.low, self.high, step=self.step)

    def distribution(self, distributions: ModuleType) -> Any:
        return distributions.IntDistribution(self.low, self.high, step=self.step)

    def grid(self) -> Sequence[int]:
        return range(self.low, self.high + 1, self.step)

    def extremes(self) -> Sequence[int]:
        return [self.low, self.high]

    def perturbed(self, value: Value, factor: float) -> int:
        return self.low + self.step * _moved(
            value, factor, low=self.low, high=self.high, step=self.step
        )


class IntLogRange(Varied):
    """A whole number between two others, by its logarithm."""

    kind: Literal["int_log_range"]
    """Always int_log_range."""
    low: Whole
    """The smallest value, 1 or more."""
    high: Whole
    """The largest value."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the limits."""
        yield from _limits(self.low, self.high)
        if self.low < 1:
            yield f"'low' is {self.low}; a logarithm needs 1 or more"

    def draw(self, name: str, trial: Suggests) -> int:
        return trial.suggest_int(name, self.low, self.high, log=True)

    def distribution(self, distributions: ModuleType) -> Any:
        return distributions.IntDistribution(self.low, self.high, log=True)

    def grid(self) -> Sequence[int]:
        return range(self.low, self.high + 1)

    def extremes(self) -> Sequence[int]:
        return [self.low, self.high]

    def perturbed(self, value: Value, factor: float) -> int:
        return self.low + _moved(value, factor, low=self.low, high=self.high, step=1)


Variable = Annotated[
    Choice | Range | LogRange | IntRange | IntLogRange, Field(discriminator="kind")
]


def _place(value: Value, values: Sequence[Value]) -> int:
    for index, one in enumerate(values):
        if json.dumps(one, sort_keys=True) == json.dumps(value, sort_keys=True):
            return index
    raise ValueError(f"{value!r} is none of {values!r}")


def _moved(value: float, factor: float, *, low: float, high: float, step: float) -> int:
    """Return how many steps above `low` a value times a factor lies; unless the factor is 1, it moves."""
    last, now = round((high - low) / step), round((value - low) / step)
    place = round((value * factor - low) / step)
    if place == now:
        place += (factor > 1) - (factor < 1)
    return min(max(place, 0), last)


def _limits(low: float, high: float) -> Iterator[str]:
    if low >= high:
        yield f"'low' is {low:g} and 'high' {high:g}; 'low' must be the smaller one"
    elif math.isinf(high - low):
        yield f"'low' is {low:g} and 'high' {high:g}, further apart than any number; bring them nearer"


def _whole_steps(low: float, high: float, step: float) -> Iterator[str]:
    first, last, each = (Decimal(str(one)) for one in (low, high, step))
    if (last - first) % each:
        nearest = first + (last - first) // each * each
        yield f"'step' is {step:g}, which does not lead from {low:g} to {high:g}; try 'high' {nearest}"
