"""The config of PPO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ludus.config import NonNegativeFloat, Positive, PositiveFloat
from ludus.nn.schedules import too_long
from ludus.rl.cadence import epochs_never_reached, never_so_many
from ludus.rl.config import Discount, EpochsConfig, RLConfig, Scheduled
from ludus.rl.network_config import NetworkSection


class PpoConfig(RLConfig):
    """Everything that decides a PPO run."""

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
    policy_loss: Literal["clip", "kl"]
    """Hold an update back by clipping its ratio, or by a price on its distance."""
    clip: Scheduled
    """How far a ratio may go from 1, by optimisation steps; with kl, the price of distance."""
    value_clip: PositiveFloat | None
    """How far a value may move from the one before the updates; null lets it go."""
    value_coef: NonNegativeFloat
    """How much the value's loss counts beside the policy's."""
    entropy_coef: NonNegativeFloat
    """How much being undecided is worth."""
    normalise_advantage: bool
    """Bring the advantages of each minibatch to mean 0 and deviation 1."""

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
            yield from never_so_many(self.epochs, self._whole_epochs * self._per_epoch)
        yield from epochs_never_reached(self.epochs, self.num_epochs)
        yield from self.length_problems(self.run_opts, ("epochs.eval_freq", self.epochs.eval_freq))
        yield from too_long(
            self.clip.schedule, "clip.schedule", self.run_opts, "optimisation steps"
        )

    @property
    def _whole_epochs(self) -> int:
        return -(-self.epochs.max_env_steps // (self.rollout_steps * self.num_envs))

    @property
    def _per_epoch(self) -> int:
        return self.passes * self.minibatches

    def epochs_for(self, max_opts: int) -> int:
        """Return how many rollouts it takes to make this many updates."""
        return -(-max_opts // self._per_epoch)

    @property
    def num_epochs(self) -> int:
        """How many rollouts the run has."""
        limit, whole = self.epochs.max_opts, self._whole_epochs
        return whole if limit is None else min(whole, self.epochs_for(limit))

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
