"""Drift detection by the expected calibration error."""

from __future__ import annotations

from typing import Literal

from ludus.active.drift.calibration import ece
from ludus.active.drift.kinds._calibration_error import CalibrationError, CalibrationErrorConfig
from ludus.config.registry import register


@register("state_estimation", "ece")
class Ece(CalibrationError):
    """ECE of a window compared with earlier windows; only a rise counts."""

    kind = "ece"
    error = staticmethod(ece)

    class Config(CalibrationErrorConfig):
        """How it is measured and compared."""

        kind: Literal["ece"]
        """The expected calibration error; it needs true classes."""
