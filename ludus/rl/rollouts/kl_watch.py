"""The KL divergence of a rollout's updates: the adaptive penalty beta, and when to stop early."""

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
    """The factor of the penalty at the beginning."""
    target: PositiveFloat | None
    """The KL divergence aimed at: after a rollout whose last pass found 1.5 times more beta doubles,
    after one that found 1.5 times less it halves; null keeps beta as it is."""


class KlWatch:
    """Counts passes over rollouts and keeps the KL divergence that the updates find.

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
        """Take the penalty, None where ratios are clipped instead, and the minibatches of a pass."""
        self._minibatches = minibatches
        self._target_kl = target_kl
        self._target = None if kl is None else kl.target
        self.beta = 0.0 if kl is None else kl.beta
        """The factor of the KL penalty now; 0 where ratios are clipped instead."""
        self.num_passes = 0
        """How many passes over rollouts have begun, in the whole run."""
        self._num_updates = 0
        self._last = 0.0
        self._sum = torch.zeros((), device=device)
        """What the updates of this pass found, added up."""

    def note(self, kl: Tensor) -> None:
        """Take in the KL divergence that an update has found."""
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
        """Whether the last update found the policy too far from the one that made the rollout."""
        return self._target_kl is not None and self._last > _TOO_FAR * self._target_kl

    def begin_rollout(self) -> None:
        """Adapt beta to the mean of the last pass, and begin to watch anew."""
        if self._target is not None and self._num_updates:
            count = (self._num_updates - 1) % self._minibatches + 1
            self.beta = next_kl_beta(self.beta, float(self._sum) / count, target=self._target)
        self._num_updates, self._last = 0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return beta, the passes, and what this rollout's updates have found."""
        return {
            "beta": self.beta,
            "num_passes": self.num_passes,
            "num_updates": self._num_updates,
            "last": self._last,
            "sum": self._sum,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        self.check_state(state)
        self.num_passes, self._num_updates = state["num_passes"], state["num_updates"]
        self.beta, self._last = state["beta"], state["last"]
        self._sum.copy_(state["sum"])

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such a watch."""
        states.check_keys(state, "beta", "num_passes", "num_updates", "last", "sum")
        states.whole(state, "num_passes")
        states.whole(state, "num_updates")
        states.number(state, "beta", at_least=0)
        # What an update found that was not taken may be anything.
        states.real(state, "last")
        states.like(state, "sum", self._sum)
