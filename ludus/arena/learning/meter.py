"""Meter: the accumulated statistics since the last record, as a part; they stay on the device until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.arena.statistics import means
from ludus.core import states


class Meter:
    """Accumulates statistics under the same names each time."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self._names = sorted(names)
        self._totals = torch.zeros(len(names), 2, dtype=torch.float64, device=device)

    def update(self, statistics: Mapping[str, Tensor]) -> None:
        """Add one set of them."""
        self._totals.add_(torch.stack([statistics[name] for name in self._names]))

    def take(self) -> dict[str, float]:
        """Return the means, and reset."""
        found = means(dict(zip(self._names, self._totals.clone(), strict=True)))
        self._totals.zero_()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"totals": self._totals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load saved sums."""
        states.check_keys(state, "totals")
        self._totals.copy_(states.like(state, "totals", self._totals))
