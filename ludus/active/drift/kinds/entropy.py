"""Drift detection by the entropy of the predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from ludus.active.drift.calibration import mean_entropy
from ludus.active.drift.estimator import Measured, Window
from ludus.config.base import PositiveFloat, StrictConfig
from ludus.config.registry import register
from ludus.core import states


@register("state_estimation", "entropy")
class AverageEntropy:
    """The mean entropy of a window against a threshold; it needs no true classes."""

    kind = "entropy"

    class Config(StrictConfig):
        """The threshold."""

        kind: Literal["entropy"]
        """The mean entropy of the predicted classes."""
        threshold: PositiveFloat
        """It is high above this many nats; a uniform prediction of C classes has log(C)."""

    def __init__(self, config: Config) -> None:
        self._threshold = config.threshold

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the mean entropy, and whether it is above the threshold."""
        value = mean_entropy(window.log_probs)
        is_high = value > self._threshold
        why = f"the mean entropy is {value:.4g}, above {self._threshold:.4g}" if is_high else ""
        return Measured({"state/entropy": value}, is_high, is_judged=True, why=why)

    def reset(self) -> None:
        """Do nothing: there is no state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that the saved state is empty."""
        states.check_keys(state)
