"""The exponential moving average (EMA) of weights, debiased: smoother than the weights, and often better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ludus.core import states
from ludus.nn.flat import FlatParameters, Vectors

TOTAL = "ema_total"
"""The key of the totals in a state, next to `ema`; states of version 0.1.0 do not have it."""

# In place of 0, so that a part that has taken no step yet is not divided by 0.
_NOTHING = 1e-30


class Ema:
    """The EMA of the weights after each step: each counts `decay` times as much as the next.

    It is debiased, as the moments of Adam are: the initial weights count for nothing, and after one step the
    EMA equals the weights of that step. An EMA loaded from a state without totals goes on without debiasing,
    with the initial weights in it.
    """

    def __init__(
        self, flat: FlatParameters, decay: float, *, dtype: torch.dtype | None = None
    ) -> None:
        """The EMA has this dtype, that of the weights unless given."""
        self._flat = flat
        self.vectors = [vector.to(dtype or vector.dtype, copy=True) for vector in flat.vectors]
        self._share = 1 - decay
        self._totals = [torch.full((), _NOTHING, device=vector.device) for vector in self.vectors]
        """1 - decay ** steps of each part: the sum of the coefficients, which debiasing divides by."""
        self._ones = [torch.ones_like(total) for total in self._totals]
        self._is_debiased = True

    def follow(self, vectors: Vectors, stays: Vectors) -> None:
        """Move each EMA vector towards its weights, unless its `stays` holds 1: the part took no step."""
        parts = zip(self.vectors, vectors, stays, self._totals, self._ones, strict=True)
        for own, vector, stay, total, one in parts:
            share = self._share * (one - stay)
            share = share / total.lerp_(one, share)
            # An explicit test, since `to` alone would be one more operation on the tape.
            vector = vector if own.dtype == vector.dtype else vector.to(own.dtype)
            own.lerp_(vector, share if own.dtype == share.dtype else share.to(own.dtype))

    def state(self) -> dict[str, Any]:
        """Return the EMA by parameter name, and the totals."""
        means = {"ema": self._flat.by_name(self.vectors)}
        if not self._is_debiased:
            return means
        first = self._totals[0].device
        return means | {TOTAL: torch.stack([total.to(first) for total in self._totals])}

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this holds an EMA of these weights, and valid totals if any."""
        with states.within("ema"):
            self._check_means(state["ema"])
        if TOTAL in state:
            totals = states.like(state, TOTAL, torch.stack([t.cpu() for t in self._totals]))
            if not bool(((totals > 0) & (totals <= 1)).all()):
                raise states.StateError(TOTAL, "holds a number that is not above 0 and up to 1")

    def load(self, state: Mapping[str, Any]) -> None:
        """Copy a saved EMA and its totals in."""
        self.load_means(state["ema"])
        self._is_debiased = TOTAL in state
        for index, total in enumerate(self._totals):
            total.copy_(state[TOTAL][index]) if self._is_debiased else total.fill_(1.0)

    def load_means(self, named: Mapping[str, Any]) -> None:
        """Copy a saved EMA in."""
        self._check_means(named)
        for name, mean in self._flat.by_name(self.vectors).items():
            mean.copy_(named[name])

    def _check_means(self, named: Mapping[str, Any]) -> None:
        own = self._flat.by_name(self.vectors)
        states.check_keys(named, *own)
        for name, mean in own.items():
            states.like(named, name, mean, finite=True)


def without_total(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state without the totals; their absence means that an EMA is not debiased."""
    return {name: value for name, value in state.items() if name != TOTAL}
