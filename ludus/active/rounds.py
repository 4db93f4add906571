"""Progress of the rounds, for the stopping criteria: a part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.active.config import StoppingConfig
from ludus.core import states


class Progress:
    """The number of consecutive rounds with stable predictions, and the reason to stop, if any."""

    def __init__(self, config: StoppingConfig | None, size: int) -> None:
        """`size` is the size of the pool."""
        self._config = config
        self._said_N = torch.full((size,), -1, dtype=torch.int64)
        self.num_stable = 0
        self.reason = ""

    @property
    def looks_at_pool(self) -> bool:
        """Whether `update` needs the predictions for the whole pool."""
        return self._config is not None and self._config.stable_share is not None

    def update(self, accuracy: float | None, said_N: Tensor | None) -> float | None:
        """Update with validation accuracy and predicted classes; return the share that is unchanged."""
        share = None
        if self._config is None:
            return None
        if said_N is not None and self._config.stable_share is not None:
            said_N = said_N.cpu()
            is_first = bool((self._said_N < 0).all())
            share = 0.0 if is_first else float((self._said_N == said_N).double().mean())
            self.num_stable = self.num_stable + 1 if share >= self._config.stable_share else 0
            self._said_N = said_N.clone()
            if self.num_stable >= self._config.stable_rounds:
                times = f"{self.num_stable} times in a row"
                self.reason = f"{share:.1%} of the pool is predicted as before, {times}"
        target = self._config.target_accuracy
        if target is not None and accuracy is not None and accuracy >= target:
            self.reason = (
                f"the accuracy on validation data is {accuracy:.4f}; {target} was asked for"
            )
        return share

    def state_dict(self) -> dict[str, Any]:
        return {"said": self._said_N, "num_stable": self.num_stable, "reason": self.reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "said", "num_stable", "reason")
        said_N = states.like(state, "said", self._said_N)
        self.num_stable, self.reason = (
            states.whole(state, "num_stable"),
            states.text(state, "reason"),
        )
        self._said_N = said_N.clone()
