"""The keys of agents that learn from the rollout just collected, and how long their runs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ludus.config.base import Positive, StrictConfig
from ludus.config.minibatches import undivided
from ludus.rl.config import Discount, EpochsConfig
from ludus.rl.intervals import epochs_never_reached, never_so_many, unreached_epochs
from ludus.rl.network_config import NetworkSection
from ludus.rl.run_length import count_epochs

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
    num_epochs: Positive
    """How many times the updates go through each rollout."""
    minibatch_size: Positive
    """How many steps of a rollout one update learns from."""
    gae_lambda: Discount
    """How far ahead advantages look: 0 one step, 1 to the end of the episode."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        count = self.rollout_steps * self.num_envs
        if count % self.minibatch_size:
            yield undivided(self.minibatch_size, count, "steps", "rollout_steps x num_envs")
            return
        if self.epochs.max_opt_steps is not None:
            whole = -(-self.epochs.max_env_steps // count)
            yield from never_so_many(self.epochs, whole * self._per_epoch)
        yield from epochs_never_reached(self.epochs, self.run_epochs)
        yield from self.length_problems(
            self.run_opts, ("epochs.evaluate_every_epochs", self.epochs.evaluate_every_epochs)
        )

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never comes to, and its value for never."""
        keys = unreached_epochs(self.epochs, self.run_epochs)
        return self.turned_off("epochs", keys, "evaluate_every_epochs")

    @property
    def _per_epoch(self) -> int:
        return self.num_epochs * self.num_minibatches

    def epochs_for(self, max_opt_steps: int) -> int:
        """Return how many rollouts it takes to make this many updates."""
        return -(-max_opt_steps // self._per_epoch)

    @property
    def run_epochs(self) -> int:
        """How many rollouts the run has."""
        return count_epochs(self.epochs, self.rollout_steps * self.num_envs, self.epochs_for)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps each env takes in an epoch."""
        return self.rollout_steps

    @property
    def run_opts(self) -> int:
        """How many optimisation steps the run has."""
        owed = self.run_epochs * self._per_epoch
        return owed if self.epochs.max_opt_steps is None else min(owed, self.epochs.max_opt_steps)

    @property
    def batch_size(self) -> int:
        """How many steps one update learns from, as agents with a replay buffer call it."""
        return self.minibatch_size

    @property
    def num_minibatches(self) -> int:
        """Into how many pieces each epoch divides a rollout; each is an update."""
        return self.rollout_steps * self.num_envs // self.minibatch_size
