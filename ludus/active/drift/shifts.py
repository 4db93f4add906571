"""Distribution shift: the class probabilities at each step of a stream.

Shapes: C classes.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from ludus.config.base import NonNegativeFloat, Positive, StrictConfig
from ludus.config.registry import register
from ludus.config.sections import registered
from ludus.core.errors import ConfigError

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
