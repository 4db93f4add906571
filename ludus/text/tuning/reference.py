"""The log-probabilities of the answers under the reference model, for DPO: data, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.text.tuning.evaluator import TuningEvaluator
from ludus.text.tuning.tuned_model import TunedModel


class Reference:
    """Holds what the starting weights say about the training and the validation examples; a part."""

    def __init__(self, model: TunedModel, evaluators: Mapping[str, TuningEvaluator]) -> None:
        """`evaluators` are those of the training and the validation examples."""
        self._model, self._evaluators = model, evaluators
        self.log_probs: dict[str, Tensor] = {}
        """By name of the data: (examples, 2), empty until they are computed."""

    def compute(self) -> None:
        """Compute them from the model's current weights, which have not learned yet."""
        if self.log_probs:
            return
        found = {name: one.reference(self._model) for name, one in self._evaluators.items()}
        self._set(found)

    def _set(self, found: dict[str, Tensor]) -> None:
        self.log_probs, self._model.reference_B2 = found, found.get("train")

    def state_dict(self) -> dict[str, Any]:
        """Return them by name."""
        return dict(self.log_probs)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what was computed."""
        if not state:
            self._set({})
            return
        states.check_keys(state, *self._evaluators)
        device = next(self._model.module.parameters()).device
        found = {}
        for name, one in self._evaluators.items():
            like = torch.zeros(len(one.table), 2, device=device)
            found[name] = states.like(state, name, like).to(device, copy=True)
        self._set(found)
