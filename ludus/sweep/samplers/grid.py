"""Grid search: every combination of the values once, the last key of the file varying fastest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.sweep.sampler import Sampler
from ludus.sweep.variables import Value


@register("sampler", "grid")
class Grid(Sampler):
    """Tries every combination of countable values; the sweep ends after the last."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["grid"]
        """Grid search."""

    def problems(self) -> Iterator[str]:
        """Yield each key whose values cannot be counted."""
        for path, varied in self.space.variables.items():
            if varied.grid() is None:
                yield (
                    f"'sampler.kind' is grid, and '{path}' may be any number between two others; give it a"
                    " 'step' or a choice of values, or use another sampler"
                )

    def point(self, number: int) -> dict[str, Value] | None:
        return next(itertools.islice(self.space.points(), number, None), None)

    def is_exhausted(self, number: int) -> bool:
        return self.point(number) is None
