"""The config of PPO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ludus.config.base import NonNegativeFloat, Positive, PositiveFloat
from ludus.config.sections import StrictConfig
from ludus.nn.schedules import too_long
from ludus.rl.cadence import epochs_never_reached, never_so_many, unreached_epochs
from ludus.rl.config import Discount, EpochsConfig, RLConfig, Scheduled
from ludus.rl.network_config import NetworkSection


class KlConfig(StrictConfig):
    """A price on the KL divergence from the policy that made the rollout."""

    beta: PositiveFloat
    """The price at the beginning."""
    target: PositiveFloat | None
    """The KL divergence aimed at: after a rollout whose last pass found 1.5 times more beta doubles,
    after one that found 1.5 times less it halves; null keeps beta as it is."""


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
    """Hold updates back by clipping their ratios (clip) or by a price on the KL divergence (kl); the
    section of the other one is null."""
    clip: Scheduled | None
    """How far a ratio may go from 1, by optimisation steps; null with policy_loss: kl."""
    kl: KlConfig | None
    """The price on the KL divergence; null with policy_loss: clip."""
    target_kl: PositiveFloat | None
    """End the passes over a rollout after an update that found a KL divergence of more than 1.5 times
    this; null goes through all of them."""
    value_clip: PositiveFloat | None
    """How far a value may move from the one before the updates; null lets it go."""
    value_coef: NonNegativeFloat
    """How much the value's loss, half its mean squared error, counts beside the policy's."""
    entropy_coef: NonNegativeFloat
    """How much the policy's entropy counts, against becoming certain too soon."""
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
        yield from self._restraint_problems()

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never comes to, and its value for never."""
        keys = unreached_epochs(self.epochs, self.num_epochs)
        return self.turned_off("epochs", keys, "eval_freq")

    def _restraint_problems(self) -> Iterator[str]:
        """Yield the section that is missing, and the one that would not be read."""
        other = "kl" if self.policy_loss == "clip" else "clip"
        if getattr(self, self.policy_loss) is None:
            yield (
                f"'policy_loss' is {self.policy_loss}, but the section '{self.policy_loss}' is null;"
                " fill it in"
            )
        if getattr(self, other) is not None:
            yield (
                f"'policy_loss' is {self.policy_loss}, so nothing reads the section '{other}'; set it"
                f" to null, or set policy_loss: {other}"
            )
        if self.clip is not None:
            schedule, steps = self.clip.schedule, self.run_opts
            yield from too_long(schedule, "clip.schedule", steps, "optimisation steps")

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
