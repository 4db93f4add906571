"""Off-policy agents: the config keys of replay and of target networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ludus.config.base import (
    Count,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    PositiveShare,
    StrictConfig,
)
from ludus.config.start import OffPolicyStartConfig
from ludus.data.replay.prioritised import PerConfig
from ludus.data.replay.row_layout import RowLayout
from ludus.nn.schedules import ScheduleSection, highest, too_long
from ludus.rl.config import EpochsConfig, RLConfig, StepsConfig
from ludus.rl.networks._body import NetworkSection

# A file in which both sections are filled in.
_FILLED_IN = {"steps": "dqn", "epochs": "dqn-mountaincar"}


class OffPolicyEpochsConfig(EpochsConfig):
    """The epochs of an agent that learns from a replay buffer."""

    steps_per_epoch: Positive
    """Number of steps of each env per epoch."""
    updates_per_env_step: PositiveFloat
    """Number of updates per env step; steps before learning starts count too."""


class PrioritisedConfig(PerConfig):
    """Prioritised experience replay: transitions are sampled in proportion to the TD error."""

    beta_schedule: ScheduleSection
    """How beta changes with the optimisation steps; it usually ends at 1."""

    def problems(self) -> Iterator[str]:
        """Yield a message for each number out of bounds."""
        yield from super().problems()
        if self.beta <= 1 < (most := highest(self.beta_schedule, self.beta)):
            yield (
                f"'beta_schedule' reaches {most:g}; beta goes from 0, no correction, to 1, all of it"
            )


class ReplayConfig(StrictConfig):
    """The replay buffer."""

    capacity: Positive
    """Number of transitions stored; the oldest are overwritten."""
    on_device: bool
    """Store them on the training device, rather than in main memory."""
    prioritised: PrioritisedConfig | None
    """Prioritised experience replay, by TD error; null samples uniformly."""


# Mixins: their keys are added to those of RLConfig, as in DqnConfig(ValueConfig, OffPolicyConfig, RLConfig).
if TYPE_CHECKING:
    _Mixin = RLConfig
else:
    _Mixin = StrictConfig


class OffPolicyConfig(_Mixin):
    """The keys of every agent with a replay buffer, in addition to those of RLConfig."""

    counted_in: Literal["steps", "epochs"]
    """Which of the two sections below applies."""
    steps: StepsConfig | None
    """The run counted in optimisation steps, with counted_in: steps; else null."""
    epochs: OffPolicyEpochsConfig | None
    """The run counted in epochs, with counted_in: epochs; else null."""
    start: OffPolicyStartConfig | None
    """The run to start from; null starts from new weights."""
    network: NetworkSection
    """The body of each network."""
    replay: ReplayConfig
    """The replay buffer."""
    n_step: Positive
    """n of the n-step return: the number of rewards summed before bootstrapping."""
    batch_size: Positive
    """Number of transitions per update."""
    learning_starts: Count
    """Number of env steps before the first update, with random actions where the agent can."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        other = "epochs" if self.counted_in == "steps" else "steps"
        if getattr(self, other) is not None:
            yield (
                f"'{other}' is filled in, but 'counted_in' is {self.counted_in}, which reads"
                f" '{self.counted_in}' alone; set '{other}' to null"
            )
        chosen = getattr(self, self.counted_in)
        if chosen is None:
            yield (
                f"'counted_in' is {self.counted_in}, but the section '{self.counted_in}' is null; fill it in"
                f" as `ludus new {_FILLED_IN[self.counted_in]}` does"
            )
            return
        if self.batch_size > self.replay.capacity:
            yield (
                f"'batch_size' is {self.batch_size}, more than replay.capacity {self.replay.capacity}"
                " can hold; make it smaller or the capacity larger"
            )
        if self.epochs is not None:
            yield from self._epoch_problems(self.epochs)
        yield from self.length_problems()
        if self.epochs is None and self.settings.checkpoint.every_epochs:
            yield (
                f"'settings.checkpoint.every_epochs' is {self.settings.checkpoint.every_epochs}, but"
                " a run counted in steps has no epochs; set it to 0, and use every_opt_steps"
            )
        if (per := self.replay.prioritised) is not None:
            path = "replay.prioritised.beta_schedule"
            yield from too_long(per.beta_schedule, path, self.run_opts, "optimisation steps")

    @property
    def counted(self) -> tuple[str, EpochsConfig | StepsConfig, int]:
        """The section that `counted_in` names, and the number of epochs or of updates."""
        if self.counted_in == "epochs":
            assert self.epochs is not None
            return "epochs.", self.epochs, self.run_epochs
        assert self.steps is not None
        return "steps.", self.steps, self.steps.max_opt_steps

    def _epoch_problems(self, epochs: OffPolicyEpochsConfig) -> Iterator[str]:
        if self.learning_starts >= epochs.max_env_steps:
            yield (
                f"'learning_starts' is {self.learning_starts}, but the run ends at"
                f" epochs.max_env_steps {epochs.max_env_steps}: it would never learn; lower the first"
            )
        whole = -(-epochs.max_env_steps // self._per_epoch)
        most = int(whole * self._per_epoch * epochs.updates_per_env_step)
        yield from epochs.never_so_many("epochs.", most)

    @property
    def _per_epoch(self) -> int:
        return self.steps_per_epoch * self.num_envs

    def epochs_for(self, max_opt_steps: int) -> int:
        """Return the number of epochs for this many updates."""
        assert self.epochs is not None
        rate = self.epochs.updates_per_env_step
        count = -(-max(self.learning_starts, int(max_opt_steps / rate), 1) // self._per_epoch)
        while int(count * self._per_epoch * rate) < max_opt_steps:
            count += 1
        return count

    @property
    def run_epochs(self) -> int:
        """Number of epochs of the run, with counted_in: epochs."""
        assert self.epochs is not None
        return self.epochs.count_epochs(self._per_epoch, self.epochs_for)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of each env per epoch."""
        assert self.epochs is not None
        return self.epochs.steps_per_epoch

    @property
    def run_opts(self) -> int:
        """Number of optimisation steps of the run, exactly or approximately."""
        if self.counted_in == "steps":
            assert self.steps is not None
            return self.steps.max_opt_steps
        assert self.epochs is not None
        owed = int(self.epochs.max_env_steps * self.epochs.updates_per_env_step)
        return self.epochs.num_opts(owed)

    @property
    def run_env_steps(self) -> int:
        """Number of env steps of the run, exactly or approximately."""
        if self.counted_in == "steps":
            assert self.steps is not None
            return (
                self.learning_starts + self.steps.max_opt_steps * self.steps.update_every_env_steps
            )
        assert self.epochs is not None
        return min(self.epochs.max_env_steps, self.run_epochs * self._per_epoch)


class TargetConfig(StrictConfig):
    """Updates of the target network."""

    may_change: ClassVar[tuple[str, ...]] = ("tau",)

    sync_every_opt_steps: Positive
    """Number of optimisation steps between target updates."""
    tau: PositiveShare
    """Polyak coefficient: the fraction moved towards the online network; 1 copies it."""


if TYPE_CHECKING:
    _OfReplay = OffPolicyConfig
else:
    _OfReplay = StrictConfig


class ExplorationConfig(StrictConfig):
    """Exploration of an agent with Q-values: epsilon-greedy or softmax."""

    kind: Literal["epsilon", "softmax"]
    """epsilon: a random action with this probability; softmax: sampled by Q / this temperature."""
    initial: NonNegativeFloat
    """The probability or temperature at the beginning."""
    schedule: ScheduleSection
    """How it changes with the env steps."""

    def problems(self) -> Iterator[str]:
        """Yield a message if epsilon is not a probability."""
        if self.kind != "epsilon":
            return
        if self.initial > 1:
            yield f"'initial' is {self.initial}; with epsilon it is a probability, 1 at most"
        elif (most := highest(self.schedule, self.initial)) > 1:
            yield f"'schedule' reaches {most:g}; with epsilon it is a probability, 1 at most"


class ValueConfig(_OfReplay):
    """The keys of agents that learn Q-values, in addition to those of OffPolicyConfig."""

    target: TargetConfig
    """How the target network is updated."""
    exploration: ExplorationConfig
    """How the agent explores while training."""
    double: bool
    """Double Q-learning: the online network chooses the next action, the target network values it."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from super().problems()
        if getattr(self, self.counted_in) is not None:
            path = "exploration.schedule"
            yield from too_long(self.exploration.schedule, path, self.run_env_steps, "env steps")


def example_batch(
    config: OffPolicyConfig, layout: RowLayout, device: torch.device
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return zeros in the shapes of a batch's rows, images and importance weights."""
    rows, images = torch.zeros(config.batch_size, layout.width, device=device), None
    if layout.has_images:
        images = rows.new_zeros(len(rows), layout.image_width, dtype=torch.uint8)
    weights = None if config.replay.prioritised is None else rows.new_zeros(len(rows))
    return rows, images, weights
