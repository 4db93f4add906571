"""On-policy agents: the config keys of rollouts, and the length of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ludus.config.base import Positive, StrictConfig
from ludus.config.minibatches import undivided
from ludus.rl.config import Discount, EpochsConfig
from ludus.rl.intervals import epochs_never_reached, never_so_many, unreached_epochs
from ludus.rl.network_config import NetworkSection
from ludus.rl.run_length import count_epochs

# A mixin: its keys are added to those of RLConfig, as in PpoConfig(OnPolicyConfig, RLConfig).
if TYPE_CHECKING:
    from ludus.rl.config import RLConfig as _Beside
else:
    _Beside = StrictConfig


class OnPolicyConfig(_Beside):
    """The keys of every on-policy agent, in addition to those of RLConfig."""

    epochs: EpochsConfig
    """The run, counted in epochs of one rollout and its updates."""
    network: NetworkSection
    """The body of the policy network and of the value network."""
    shared_body: bool
    """Whether policy and value share one body."""
    rollout_steps: Positive
    """Number of steps of each env per rollout."""
    num_epochs: Positive
    """Number of passes of the updates over each rollout."""
    minibatch_size: Positive
    """Number of steps of a rollout per update."""
    gae_lambda: Discount
    """Lambda of GAE: 0 is the one-step advantage, 1 looks to the end of the episode."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
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
        """Return each key that a run of this length never reaches, and its value for never."""
        keys = unreached_epochs(self.epochs, self.run_epochs)
        return self.turned_off("epochs", keys, "evaluate_every_epochs")

    @property
    def _per_epoch(self) -> int:
        return self.num_epochs * self.num_minibatches

    def epochs_for(self, max_opt_steps: int) -> int:
        """Return the number of rollouts for this many updates."""
        return -(-max_opt_steps // self._per_epoch)

    @property
    def run_epochs(self) -> int:
        """Number of rollouts of the run."""
        return count_epochs(self.epochs, self.rollout_steps * self.num_envs, self.epochs_for)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of each env per epoch."""
        return self.rollout_steps

    @property
    def run_opts(self) -> int:
        """Number of optimisation steps of the run."""
        owed = self.run_epochs * self._per_epoch
        return owed if self.epochs.max_opt_steps is None else min(owed, self.epochs.max_opt_steps)

    @property
    def batch_size(self) -> int:
        """The minibatch size, by the name that off-policy agents use."""
        return self.minibatch_size

    @property
    def num_minibatches(self) -> int:
        """Number of minibatches per pass over a rollout; each is an update."""
        return self.rollout_steps * self.num_envs // self.minibatch_size
