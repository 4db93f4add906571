"""The mean of statistics since the last record, as a part; numbers stay on the device until then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states


class Meter:
    """Adds up statistics of the same names, each time."""

    def __init__(self, names: list[str], device: torch.device) -> None:
        self._names = sorted(names)
        self._totals = torch.zeros(len(names), dtype=torch.float64, device=device)
        self._count = 0

    def hear(self, statistics: Mapping[str, Tensor]) -> None:
        """Add one set of them."""
        self._totals.add_(torch.stack([statistics[name].double() for name in self._names]))
        self._count += 1

    def take(self) -> dict[str, float]:
        """Return the means, and begin anew."""
        if not self._count:
            return {}
        means = [total / self._count for total in self._totals.tolist()]
        self._totals.zero_()
        self._count = 0
        return dict(zip(self._names, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"totals": self._totals, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up saved sums."""
        states.check_keys(state, "totals", "count")
        totals, count = states.like(state, "totals", self._totals), states.whole(state, "count")
        self._totals.copy_(totals)
        self._count = count
