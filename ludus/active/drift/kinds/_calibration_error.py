"""What the kinds that go by an error of calibration share: bins, true classes and a baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ludus.active.drift.baseline import BaselineConfig
from ludus.active.drift.estimator import ByBaseline, Window
from ludus.config.base import Positive, StrictConfig


class CalibrationErrorConfig(StrictConfig):
    """How it is measured and compared."""

    bins: Positive
    """How many bins of equal width the confidence is parted into."""
    baseline: BaselineConfig
    """With what it is compared."""


class CalibrationError(ByBaseline):
    """An error of calibration of a window beside that of the windows before it; only a rise counts."""

    error: ClassVar[Callable[..., float]]
    """Takes log probabilities, true classes and `bins`."""

    def __init__(self, config: CalibrationErrorConfig) -> None:
        super().__init__(config.baseline)
        self._bins = config.bins

    def value(self, window: Window) -> float:
        """Return the error of this window."""
        return type(self).error(window.log_probs, window.true_classes(self.kind), bins=self._bins)
