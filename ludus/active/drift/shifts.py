"""Distribution shift: the class probabilities at each step of a stream, and the stream sampled by them.

Shapes: N rows of the data set, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from ludus.config.base import NonNegativeFloat, Positive, StrictConfig
from ludus.config.registry import register
from ludus.config.sections import registered
from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.seeds import generator as seeded

ShiftSection = Annotated[SerializeAsAny[StrictConfig], registered("shift")]
Weights = Annotated[list[NonNegativeFloat], Field(min_length=1)]


class Shift(Protocol):
    """Class probabilities by step; a function of the step alone, independent of earlier calls."""

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return (C,) probabilities at a step, counted from 0; each step has its own generator."""


def distribution(weights: list[float], num_classes: int, key: str) -> Tensor:
    """Normalise weights to (C,) probabilities."""
    found_C = torch.tensor(weights, dtype=torch.float64)
    if len(found_C) != num_classes:
        raise ConfigError(
            f"'{key}' has {len(found_C)} numbers, and the data {num_classes} classes; give one for each"
        )
    if not bool(found_C.isfinite().all()) or float(found_C.sum()) <= 0:
        raise ConfigError(f"'{key}' leaves no class to draw; give finite numbers, one above 0")
    return found_C / found_C.sum()


@register("shift", "static")
class Static:
    """A constant distribution."""

    class Config(StrictConfig):
        """The class weights."""

        kind: Literal["static"]
        """The same distribution at every step."""
        weights: Weights | None
        """The relative weight of each class; null: all alike."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the constant distribution."""
        weights = self._config.weights
        weights = [1.0] * num_classes if weights is None else weights
        return distribution(weights, num_classes, "weights")


@register("shift", "random_uniform")
class RandomUniform:
    """Weights sampled uniformly from 0 to 1, independently for each step."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["random_uniform"]
        """At each step every class gets a weight sampled uniformly from 0 to 1."""

    def __init__(self, config: Config) -> None:
        pass

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the sampled weights divided by their sum."""
        drawn_C = 1 - torch.rand(num_classes, dtype=torch.float64, generator=generator)
        return drawn_C / drawn_C.sum()


@register("shift", "linear_shift")
class LinearShift:
    """A linear shift in `period` steps, back in as many, repeated."""

    class Config(StrictConfig):
        """The two distributions and the period."""

        kind: Literal["linear_shift"]
        """A mixture of two distributions whose weight changes by 1 / period per step, there and back."""
        start: Weights
        """The relative weight of each class at step 0 and every second period after."""
        end: Weights
        """The relative weight of each class after an odd number of periods."""
        period: Positive
        """Number of steps of the shift; the way back takes as many."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the mixture at a step."""
        config = self._config
        phase = step % (2 * config.period)
        share = min(phase, 2 * config.period - phase) / config.period
        start_C = distribution(config.start, num_classes, "start")
        return (1 - share) * start_C + share * distribution(config.end, num_classes, "end")


@register("shift", "hard_switch")
class HardSwitch:
    """Each distribution lasts exactly `period` steps; the first follows the last."""

    class Config(StrictConfig):
        """The distributions and their period."""

        kind: Literal["hard_switch"]
        """Distributions with abrupt switches between them."""
        distributions: Annotated[list[Weights], Field(min_length=2)]
        """The relative weight of each class in each distribution."""
        period: Positive
        """Number of steps that each of them lasts."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def at(self, step: int, num_classes: int, generator: torch.Generator) -> Tensor:
        """Return the distribution of the step's period."""
        config = self._config
        place = step // config.period % len(config.distributions)
        return distribution(config.distributions[place], num_classes, f"distributions.{place}")


class StreamEnded(LudusError):
    """No row is left of the classes that the stream needs."""


class Simulator:
    """Samples rows of a data set at each step, without replacement; a part.

    A class with no row left gets probability 0, and the others are rescaled. A step's rows depend on the
    seed, the step and the rows sampled before, so a resumed stream is identical.
    """

    def __init__(self, targets: Tensor, shift: Shift, *, num_classes: int, seed: int) -> None:
        """`targets` are the (N,) classes of the rows."""
        self._shift, self._seed = shift, seed
        self._rows_by_class: list[Tensor] = []
        for label in range(num_classes):
            rows = (targets.cpu() == label).nonzero()[:, 0]
            order = torch.randperm(len(rows), generator=seeded(seed, "stream/order", label))
            self._rows_by_class.append(rows[order])
        self.step = 0
        """Number of steps sampled."""
        self._num_taken = [0] * num_classes
        self.distribution_at(0)

    def distribution_at(self, step: int) -> Tensor:
        """Return the (C,) class probabilities at a step, while there are rows of all classes."""
        draws = seeded(self._seed, "stream/shift", step)
        return self._shift.at(step, len(self._rows_by_class), draws)

    @property
    def num_left(self) -> int:
        """Number of rows not yet sampled."""
        return sum(map(len, self._rows_by_class)) - sum(self._num_taken)

    def draw(self, count: int) -> Tensor:
        """Sample `count` rows; raise StreamEnded, and sample nothing, if there are too few."""
        wanted_C = self.distribution_at(self.step)
        draws = seeded(self._seed, "stream/draw", self.step)
        left = [
            len(rows) - taken
            for rows, taken in zip(self._rows_by_class, self._num_taken, strict=True)
        ]
        num_able = sum(number for number, wanted in zip(left, wanted_C, strict=True) if wanted > 0)
        if num_able < count:
            raise StreamEnded(
                f"the stream wants {count} examples at step {self.step}, and {num_able} are left of the"
                " classes that can come; give it more data, or fewer steps"
            )
        taken, found = list(self._num_taken), []
        for _ in range(count):
            may_C = wanted_C * (torch.tensor(left) > 0)
            label = int(torch.multinomial(may_C, 1, generator=draws))
            found.append(self._rows_by_class[label][taken[label]])
            taken[label] += 1
            left[label] -= 1
        self._num_taken = taken
        self.step += 1
        return torch.stack(found) if found else torch.empty(0, dtype=torch.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "num_taken": list(self._num_taken)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "step", "num_taken")
        saved = states.rows(state, "num_taken", length=len(self._num_taken))
        with states.within("num_taken"):
            most = map(len, self._rows_by_class)
            found = [states.whole(saved, place, at_most=one) for place, one in enumerate(most)]
        self.step, self._num_taken = states.whole(state, "step"), found
