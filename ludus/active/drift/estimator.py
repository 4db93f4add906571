"""The protocol of a state estimator: it measures a window of a stream and detects drift.

Shapes: N examples of the window, C classes, D features.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from ludus.config.base import NonNegativeFloat, StrictConfig
from ludus.config.sections import registered
from ludus.core import states
from ludus.core.errors import LudusError

StateSection = Annotated[SerializeAsAny[StrictConfig], registered("state_estimation")]


@dataclass(frozen=True)
class Window:
    """The latest examples of a stream: predictions, targets and features; None if not available."""

    log_probs: Tensor
    """(N, C) log probabilities of classes."""
    targets: Tensor | None
    """(N,) the true classes."""
    features: Tensor | None
    """(N, D) the network's features."""

    def true_classes(self, kind: str) -> Tensor:
        """Return the targets; raise LudusError, naming the estimator, if there are none."""
        if self.targets is None:
            raise LudusError(
                f"state estimation by {kind} compares predictions with true classes, and the stream has"
                " none; use entropy, mmd or ks"
            )
        return self.targets

    def all_features(self, kind: str) -> Tensor:
        """Return the features; raise LudusError, naming the estimator, if there are none."""
        if self.features is None:
            raise LudusError(
                f"state estimation by {kind} compares features, and the window has none; give the"
                " layer that they are taken from"
            )
        return self.features


@dataclass(frozen=True)
class Measured:
    """The measurement of one estimator on one window."""

    metrics: Mapping[str, float]
    is_high: bool
    is_judged: bool
    """Whether there was something to compare the window with."""
    why: str
    """The reason in words, if the value is high."""


class StateEstimator(Protocol):
    """A part that measures windows, one after the other."""

    kind: str

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the measurement; the baseline excludes this window."""

    def reset(self) -> None:
        """Drop the statistics of earlier windows: the model has changed."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class BaselineConfig(StrictConfig):
    """The baseline that a value is compared with."""

    window: Annotated[int, Field(ge=2)]
    """Number of preceding values in the mean and standard deviation; there is no comparison until
    there are this many."""
    deviations: NonNegativeFloat
    """Number of standard deviations above the mean from which a value counts as high."""
    min_rise: NonNegativeFloat
    """The minimum rise above the mean as well, however small the standard deviation is."""


class Baseline:
    """The latest values, and whether the next one rises above them; a part.

    Mean and standard deviation exclude the value being tested. Included among n values, it could never be
    more than (n - 1) / sqrt(n) deviations from the mean, and a threshold above that would never be
    crossed. The deviation is that of a sample, with n - 1. Only a rise counts.
    """

    def __init__(self, config: BaselineConfig) -> None:
        self._config = config
        self._values: deque[float] = deque(maxlen=config.window)

    @property
    def values(self) -> list[float]:
        """The values that the next one is compared with, oldest first."""
        return list(self._values)

    @property
    def is_full(self) -> bool:
        """Whether there are enough values to compare the next one with."""
        return len(self._values) == self._config.window

    def update(self, value: float) -> bool:
        """Return whether a value is high; if it is not, add it to the baseline.

        A high value stays out of the baseline, or a lasting drift would soon become the norm.
        """
        is_high = self._is_high(value)
        if not is_high:
            self._values.append(value)
        return is_high

    def _is_high(self, value: float) -> bool:
        if not self.is_full:
            return False
        count = len(self._values)
        mean = math.fsum(self._values) / count
        variance = math.fsum((one - mean) ** 2 for one in self._values) / (count - 1)
        rise = value - mean
        is_far = rise > self._config.deviations * math.sqrt(variance)
        return is_far and rise > self._config.min_rise

    def reset(self) -> None:
        """Drop all values: the model has changed."""
        self._values.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "values")
        saved = states.rows(state, "values")
        if len(saved) > self._config.window:
            raise states.StateError("values", f"are more than the window of {self._config.window}")
        found = [states.real(saved, index) for index in range(len(saved))]
        self._values.clear()
        self._values.extend(found)


class ByBaseline:
    """An estimator that computes one number per window and compares it with a running baseline."""

    kind = ""

    def __init__(self, baseline: BaselineConfig) -> None:
        self.baseline = Baseline(baseline)

    def value(self, window: Window) -> float:
        """Return the number; higher is worse."""
        raise NotImplementedError

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the number, and whether it is high compared with the baseline."""
        value, before = self.value(window), self.baseline.values
        is_judged, is_high = self.baseline.is_full, self.baseline.update(value)
        metrics, why = {f"state/{self.kind}": value}, ""
        if before:
            usual = metrics[f"state/{self.kind}_baseline"] = sum(before) / len(before)
            if is_high:
                why = f"{self.kind} is {value:.4g}, and was {usual:.4g} on average"
        return Measured(metrics, is_high, is_judged, why)

    def reset(self) -> None:
        """Drop the earlier values."""
        self.baseline.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"baseline": self.baseline.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "baseline")
        with states.within("baseline"):
            self.baseline.load_state_dict(states.mapping(state, "baseline"))
