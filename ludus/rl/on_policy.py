"""The keys of agents that learn from the rollout just collected, and how long their runs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ludus.config.base import Positive, StrictConfig
from ludus.rl.config import Discount, EpochsConfig
from ludus.rl.intervals import epochs_never_reached, never_so_many, unreached_epochs
from ludus.rl.network_config import NetworkSection
from ludus.rl.run_length import num_epochs

# A mixin: a config has these keys beside those of RLConfig, PpoConfig(OnPolicyConfig, RLConfig).
if TYPE_CHECKING:
    from ludus.rl.config import RLConfig as _Beside
else:
    _Beside = StrictConfig


class OnPolicyConfig(_Beside):
    """The keys that every on-policy agent has beside those of RLConfig."""

    epochs: EpochsConfig
    """The run, counted in rollouts with the updates that follow each."""
    network: NetworkSection
    """The body of the policy's network, and of the value's."""
    shared_body: bool
    """Let policy and value share one body."""
    rollout_steps: Positive
    """How many steps each env takes before the policy is improved."""
    passes: Positive
    """How many times the updates go through each rollout."""
    minibatches: Positive
    """Into how many pieces each pass divides it; each is an update."""
    gae_lambda: Discount
    """How far ahead advantages look: 0 one step, 1 to the end of the episode."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        count = self.rollout_steps * self.num_envs
        if count % self.minibatches:
            near = [m for m in range(1, count + 1) if count % m == 0]
            best = min(near, key=lambda m: abs(m - self.minibatches))
            yield (
                f"'minibatches' is {self.minibatches}, which does not divide the {count} steps of a"
                f" rollout (rollout_steps x num_envs); try {best}"
            )
        if self.epochs.max_opts is not None:
            whole = -(-self.epochs.max_env_steps // count)
            yield from never_so_many(self.epochs, whole * self._per_epoch)
        yield from epochs_never_reached(self.epochs, self.num_epochs)
        yield from self.length_problems(self.run_opts, ("epochs.eval_freq", self.epochs.eval_freq))

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never comes to, and its value for never."""
        keys = unreached_epochs(self.epochs, self.num_epochs)
        return self.turned_off("epochs", keys, "eval_freq")

    @property
    def _per_epoch(self) -> int:
        return self.passes * self.minibatches

    def epochs_for(self, max_opts: int) -> int:
        """Return how many rollouts it takes to make this many updates."""
        return -(-max_opts // self._per_epoch)

    @property
    def num_epochs(self) -> int:
        """How many rollouts the run has."""
        return num_epochs(self.epochs, self.rollout_steps * self.num_envs, self.epochs_for)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps each env takes in an epoch."""
        return self.rollout_steps

    @property
    def run_opts(self) -> int:
        """How many optimisation steps the run has."""
        owed = self.num_epochs * self._per_epoch
        return owed if self.epochs.max_opts is None else min(owed, self.epochs.max_opts)

    @property
    def batch_size(self) -> int:
        """How many steps one update learns from."""
        return self.rollout_steps * self.num_envs // self.minibatches
