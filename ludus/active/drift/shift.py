"""Distribution shift: the class probabilities at each step of a stream.

Shapes: C classes.
"""

from __future__ import annotations

from typing import Annotated, Protocol

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from ludus.config.base import NonNegativeFloat, StrictConfig
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
