"""The protocol of a state estimator: it measures a window of a stream and detects drift.

Shapes: N examples of the window, C classes, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.active.drift.baseline import Baseline, BaselineConfig
from ludus.config.base import StrictConfig
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
