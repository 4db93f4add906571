"""Estimators that compare the features of a window with those of the first window after a reset.

Shapes: N examples of a window, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from ludus.active.drift.estimator import Measured, Window
from ludus.active.drift.statistics import Compared
from ludus.core import states

Alpha = Annotated[float, Field(gt=0, lt=1)]
"""The significance level: the false positive rate of the test."""


class ByReference:
    """Compares each window with the first one, the reference; a part."""

    kind = ""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._reference_ND: Tensor | None = None

    def compared(self, reference_ND: Tensor, now: Tensor, generator: torch.Generator) -> Compared:
        """Return the statistic and its p-value."""
        raise NotImplementedError

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the statistic and p-value; the first window is stored and gives none."""
        now = window.all_features(self.kind).detach().cpu().double()
        if self._reference_ND is None:
            self._reference_ND = now.clone()
            return Measured({}, is_high=False, is_judged=False, why="")
        found = self.compared(self._reference_ND, now, generator)
        is_high = found.p_value < self._alpha
        why = (
            f"the features have moved: {self.kind} is {found.value:.4g}, p = {found.p_value:.2g}"
            if is_high
            else ""
        )
        name = f"state/{self.kind}"
        metrics = {name: found.value, f"{name}_p_value": found.p_value}
        return Measured(metrics, is_high, is_judged=True, why=why)

    def reset(self) -> None:
        """Drop the reference: another model has other features."""
        self._reference_ND = None

    def state_dict(self) -> dict[str, Any]:
        return {"reference": self._reference_ND}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "reference")
        if state["reference"] is None:
            self._reference_ND = None
            return
        like = torch.empty(0, 0, dtype=torch.float64)
        found = states.shaped(state, "reference", like, (None, None), finite=True)
        self._reference_ND = found.clone()
