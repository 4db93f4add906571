"""The base of estimators by calibration error: bins, true classes and a baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ludus.active.drift.baseline import BaselineConfig
from ludus.active.drift.estimator import ByBaseline, Window
from ludus.config.base import Positive, StrictConfig


class CalibrationErrorConfig(StrictConfig):
    """How it is measured and compared."""

    bins: Positive
    """Number of equal-width bins of confidence."""
    baseline: BaselineConfig
    """The baseline it is compared with."""


class CalibrationError(ByBaseline):
    """The calibration error of a window compared with earlier windows; only a rise counts."""

    error: ClassVar[Callable[..., float]]
    """Takes log probabilities, true classes and `bins`."""

    def __init__(self, config: CalibrationErrorConfig) -> None:
        super().__init__(config.baseline)
        self._bins = config.bins

    def value(self, window: Window) -> float:
        """Return the calibration error of this window."""
        return type(self).error(window.log_probs, window.true_classes(self.kind), bins=self._bins)
