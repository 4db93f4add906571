"""The config section `evaluation` as far as every family has it: patience, and what makes it meaningless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ludus.config.base import NonNegativeFloat, Positive
from ludus.config.sections import StrictConfig


class EvaluationConfig(StrictConfig):
    """How training is judged, and what follows from it; a family derives it and adds its own keys."""

    may_change: ClassVar[tuple[str, ...]] = ("target",)

    patience: Positive | None
    """Stop after this many evaluations in a row that were no better; null never stops for that."""
    min_delta: NonNegativeFloat
    """A score counts as better, for patience, only if it is better by more than this."""

    def problems(self) -> Iterator[str]:
        """Yield each key that has no effect because of the others."""
        if self.patience is None and self.min_delta:
            yield (
                f"'min_delta' is {self.min_delta:g}, which has no effect where 'patience' is null;"
                " set it to 0.0, or set 'patience'"
            )

    def unused(self, interval_key: str, interval: int) -> Iterator[str]:
        """Yield each key that is not read because the interval of evaluations is 0."""
        for key in ("patience", "target"):
            value = getattr(self, key, None)
            if value is not None and not interval:
                yield (
                    f"'evaluation.{key}' is {value:g}, but there are no evaluations:"
                    f" '{interval_key}' is 0; set it to null, or evaluate"
                )
