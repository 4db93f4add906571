"""Drift detection by the maximum calibration error."""

from __future__ import annotations

from typing import Literal

from ludus.active.drift.calibration import mce
from ludus.active.drift.kinds._calibration_error import CalibrationError, CalibrationErrorConfig
from ludus.config.registry import register


@register("state_estimation", "mce")
class Mce(CalibrationError):
    """MCE of a window compared with earlier windows; only a rise counts."""

    kind = "mce"
    error = staticmethod(mce)

    class Config(CalibrationErrorConfig):
        """How it is measured and compared."""

        kind: Literal["mce"]
        """The maximum calibration error; it needs true classes."""
