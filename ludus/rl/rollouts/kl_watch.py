"""The KL divergence of a rollout's updates: the adaptive coefficient beta, and early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.core import states
from ludus.losses.ppo import next_kl_beta

# As in Stable-Baselines3: a KL divergence this many times the target is too much.
_TOO_FAR = 1.5


class KlConfig(StrictConfig):
    """A penalty on the KL divergence from the policy that made the rollout."""

    beta: PositiveFloat
    """The initial KL coefficient."""
    target: PositiveFloat | None
    """The target KL divergence: beta doubles after a rollout whose last pass measured 1.5 times more,
    and halves after one that measured 1.5 times less; null keeps beta constant."""


class KlWatch:
    """Counts passes over rollouts and tracks the KL divergence of the updates.

    A number is read from the device after each update only where `target_kl` is set, and once a
    rollout where beta adapts.
    """

    def __init__(
        self,
        kl: KlConfig | None,
        *,
        minibatches: int,
        target_kl: float | None,
        device: torch.device,
    ) -> None:
        """`kl` is the penalty's config, None for clipped ratios; a pass has this many minibatches."""
        self._minibatches = minibatches
        self._target_kl = target_kl
        self._target = None if kl is None else kl.target
        self.beta = 0.0 if kl is None else kl.beta
        """The current KL coefficient; 0 for clipped ratios."""
        self.num_passes = 0
        """Number of passes over rollouts started, in the whole run."""
        self._num_updates = 0
        self._last = 0.0
        self._sum = torch.zeros((), device=device)
        """Sum of the KL divergences of this pass's updates."""

    def note(self, kl: Tensor) -> None:
        """Add the KL divergence measured by an update."""
        if self._num_updates % self._minibatches == 0:
            self.num_passes += 1
            self._sum.zero_()
        self._num_updates += 1
        if self._target is not None:
            self._sum.add_(kl)
        if self._target_kl is not None:
            self._last = float(kl)

    @property
    def is_far(self) -> bool:
        """Whether the last update's KL divergence from the rollout's policy was too large."""
        return self._target_kl is not None and self._last > _TOO_FAR * self._target_kl

    def begin_rollout(self) -> None:
        """Adapt beta to the mean KL divergence of the last pass, and reset the sums."""
        if self._target is not None and self._num_updates:
            count = (self._num_updates - 1) % self._minibatches + 1
            self.beta = next_kl_beta(self.beta, float(self._sum) / count, target=self._target)
        self._num_updates, self._last = 0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return beta, the number of passes, and the KL divergences of this rollout's updates."""
        return {
            "beta": self.beta,
            "num_passes": self.num_passes,
            "num_updates": self._num_updates,
            "last": self._last,
            "sum": self._sum,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        self.check_state(state)
        self.num_passes, self._num_updates = state["num_passes"], state["num_updates"]
        self.beta, self._last = state["beta"], state["last"]
        self._sum.copy_(state["sum"])

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of a KlWatch."""
        states.check_keys(state, "beta", "num_passes", "num_updates", "last", "sum")
        states.whole(state, "num_passes")
        states.whole(state, "num_updates")
        states.number(state, "beta", at_least=0)
        # The KL divergence of a skipped update may have any value.
        states.real(state, "last")
        states.like(state, "sum", self._sum)
