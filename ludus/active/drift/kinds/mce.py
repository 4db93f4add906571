"""The state of a model by its maximum calibration error."""

from __future__ import annotations

from typing import Literal

from ludus.active.drift.baseline import BaselineConfig
from ludus.active.drift.calibration import mce
from ludus.active.drift.estimator import ByBaseline, Window
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


@register("state_estimation", "mce")
class Mce(ByBaseline):
    """MCE of a window beside that of the windows before it; only a rise counts."""

    kind = "mce"

    class Config(StrictConfig):
        """How it is measured and compared."""

        kind: Literal["mce"]
        """The maximum calibration error; it needs true classes."""
        bins: Positive
        """How many bins of equal width the confidence is parted into."""
        baseline: BaselineConfig
        """With what it is compared."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.baseline)
        self._bins = config.bins

    def value(self, window: Window) -> float:
        """Return the error of this window."""
        return mce(window.log_probs, window.true_classes(self.kind), bins=self._bins)
