"""What a state estimator is: it measures a window of a stream, and says whether the model is out of date.

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
    """What is known of the latest examples of a stream; what nobody gave is None."""

    log_probs: Tensor
    """(N, C) log probabilities of classes."""
    targets: Tensor | None
    """(N,) the true classes."""
    features: Tensor | None
    """(N, D) what the network makes of the examples."""

    def true_classes(self, kind: str) -> Tensor:
        """Return the targets, or say who needs them."""
        if self.targets is None:
            raise LudusError(
                f"state estimation by {kind} compares predictions with true classes, and the stream has"
                " none; use entropy, mmd or ks"
            )
        return self.targets

    def all_features(self, kind: str) -> Tensor:
        """Return the features, or say who needs them."""
        if self.features is None:
            raise LudusError(
                f"state estimation by {kind} compares features, and the window has none; give the"
                " layer that they are taken from"
            )
        return self.features


@dataclass(frozen=True)
class Measured:
    """What one estimator found in one window."""

    metrics: Mapping[str, float]
    is_high: bool
    is_judged: bool
    """Whether there was something to compare the window with."""
    why: str
    """What is out of order, in words, where it is."""


class StateEstimator(Protocol):
    """A part that measures windows, one after the other."""

    kind: str

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return what is found; the baseline is of earlier windows alone."""

    def reset(self) -> None:
        """Forget what earlier windows were like: the model is another one."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class ByBaseline:
    """An estimator that gives a window one number, and compares it with those of earlier windows."""

    kind = ""

    def __init__(self, baseline: BaselineConfig) -> None:
        self.baseline = Baseline(baseline)

    def value(self, window: Window) -> float:
        """Return the number, the higher the worse."""
        raise NotImplementedError

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the number, and whether it is high beside those before it."""
        value, before = self.value(window), self.baseline.values
        is_judged, is_high = self.baseline.is_full, self.baseline.update(value)
        metrics, why = {f"state/{self.kind}": value}, ""
        if before:
            usual = metrics[f"state/{self.kind}_baseline"] = sum(before) / len(before)
            if is_high:
                why = f"{self.kind} is {value:.4g}, and was {usual:.4g} on average"
        return Measured(metrics, is_high, is_judged, why)

    def reset(self) -> None:
        """Forget the earlier values."""
        self.baseline.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"baseline": self.baseline.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        states.check_keys(state, "baseline")
        with states.within("baseline"):
            self.baseline.load_state_dict(states.mapping(state, "baseline"))
