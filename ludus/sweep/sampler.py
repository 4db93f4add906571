"""Sampler: chooses the points of a space. Each kind is in a file of `samplers`, registered as a `sampler`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ludus.config.base import StrictConfig
from ludus.sweep.space import Space
from ludus.sweep.variables import Value


class Sampler:
    """Makes the sampler of Optuna that chooses one point; a new one, with another seed, for each.

    A sampler of Optuna that is kept has a generator that nothing saves, so a sweep that goes on would choose
    other points than one that was never interrupted.
    """

    Config: ClassVar[type[StrictConfig]] = StrictConfig
    replays: ClassVar[bool] = False
    """Whether it keeps state in Optuna's trials, so that a sweep that goes on chooses all points again."""

    def __init__(self, config: StrictConfig, space: Space) -> None:
        self.config: Any = config
        self.space = space

    def problems(self) -> Iterator[str]:
        """Yield why it cannot search this space."""
        yield from ()

    def make(self, seed: int, number: int) -> Any:
        """Return the sampler of Optuna for the trial of this number."""
        raise NotImplementedError

    def point(self, number: int) -> dict[str, Value] | None:
        """Return the point of the trial of this number, if it is known without Optuna."""
        return None

    def is_exhausted(self, number: int) -> bool:
        """Return whether there is no point for the trial of this number."""
        return False
