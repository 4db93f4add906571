"""The config sections that all agents share: envs, evaluation, replay, schedules, the two plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.config import (
    Count,
    Fraction,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    StrictConfig,
    TrainerConfig,
)
from ludus.data.prioritised import PerConfig
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection
from ludus.rl.cadence import epochs_never_reached, steps_never_reached
from ludus.rl.env_config import EnvSection
from ludus.rl.network_config import NetworkSection

Discount = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class Scheduled(StrictConfig):
    """A number that changes with the steps."""

    initial: NonNegativeFloat
    """Its value at the beginning."""
    schedule: ScheduleSection
    """How it goes on from there."""


class EvaluationConfig(StrictConfig):
    """How the agent is judged, and what follows from it."""

    env: EnvSection | None
    """The env it is judged in; null is the training env without the wrappers that change rewards."""
    more_envs: dict[str, EnvSection]
    """Envs it is judged in besides, by name: logged as eval/<name>/return_mean, they decide nothing."""
    episodes: Positive
    """How many episodes an evaluation has; episode i begins in the same way every time."""
    envs: Positive
    """How many envs play them side by side."""
    actions: Literal["greedy", "sampled"]
    """Judge it by its best actions, or by actions drawn as at the end of training."""
    max_episode_length: Positive
    """Cut an episode after this many steps, for envs without a time limit of their own."""
    asynchronous: bool
    """Evaluate in a process of its own while training goes on; the result is taken at the next one."""
    patience: Positive | None
    """Stop after this many evaluations in a row that were no better; null never stops for that."""
    min_delta: NonNegativeFloat
    """A mean return counts as better, for patience, only if it is better by more than this."""
    timeout_seconds: PositiveFloat
    """How long an evaluation beside training may take before its process counts as hung."""
    target_return: float | None
    """Stop as soon as an evaluation's mean return reaches this; null goes on to the end."""

    def problems(self) -> Iterator[str]:
        """Yield the names that cannot stand in a metric's."""
        for name in self.more_envs:
            if not name.isidentifier():
                yield f"'more_envs' has the name '{name}'; use letters, digits and underscores"


class NormaliseConfig(StrictConfig):
    """Bring observations and rewards to a common size, by running statistics."""

    observations: bool
    """Shift and scale each number of an observation to mean 0 and deviation 1."""
    rewards: bool
    """Divide rewards by the deviation of the discounted return."""
    clip: PositiveFloat
    """Cut normalised numbers off at this distance from zero."""


class RLConfig(TrainerConfig):
    """What every agent's file has."""

    env: EnvSection
    """The env the agent learns in."""
    num_envs: Positive
    """How many copies of it are stepped side by side."""
    step_timeout_seconds: PositiveFloat
    """How long a step may take in a worker process before it counts as hung."""
    normalise: NormaliseConfig | None
    """How observations and rewards are brought to a common size; null leaves them."""
    gamma: Discount
    """How much a reward one step later is worth."""
    optimizer: OptimizerSection
    """How weights move along the gradient."""
    learning_rate: ScheduleSection
    """How the learning rate changes with the optimisation steps, from the optimizer's own."""
    max_grad_norm: PositiveFloat | None
    """Shorten a gradient that is longer than this; null leaves it."""
    precision: Literal["float32", "bfloat16"]
    """What the networks compute in; weights stay float32."""
    compile: bool | Literal["auto"]
    """Compile the update into one function: faster steps for some seconds at the start. auto decides
    by the length of the run. Without it, on the CPU, the first update is recorded and repeated."""
    evaluation: EvaluationConfig
    """How the agent is judged."""
    return_window: Positive
    """How many of the latest training episodes rollout/ep_rew_mean is the mean of."""


class StepsConfig(StrictConfig):
    """A run counted in optimisation steps, each after a few env steps."""

    opt_interval: Positive
    """How many env steps lie between two optimisation steps."""
    record_interval: Count
    """Write a record each time this many optimisation steps were made; 0 means never."""
    eval_interval: Count
    """Evaluate each time this many optimisation steps were made; 0 means never."""
    save_interval: Count
    """Keep the weights in models/<opt_steps> each time this many were made; 0 means never."""
    max_opts: Positive
    """How many optimisation steps the run has."""


class EpochsConfig(StrictConfig):
    """A run counted in epochs, each some env steps and then some updates."""

    max_env_steps: Positive
    """The run ends with the epoch in which this many env steps are reached."""
    record_freq: Count
    """Write a record every so many epochs; 0 means never."""
    eval_freq: Count
    """Evaluate every so many epochs, but not in the first; 0 means never."""
    save_freq: Count
    """Keep the weights in models/<opt_steps> every so many epochs; 0 means never."""


class OffPolicyEpochsConfig(EpochsConfig):
    """The epochs of an agent that learns from a replay buffer."""

    steps_per_epoch: Positive
    """How many steps each env takes in an epoch."""
    updates_per_env_step: PositiveFloat
    """How many updates are owed for each env step, those before learning starts included."""


class PrioritisedConfig(PerConfig):
    """How surprising transitions are drawn more often."""

    beta_schedule: ScheduleSection
    """How beta changes with the optimisation steps; it usually ends at 1."""

    def problems(self) -> Iterator[str]:
        """Yield each number that is out of its bounds."""
        yield from super().problems()
        if getattr(self.beta_schedule, "final", 1.0) > 1:
            yield "'beta_schedule.final' is above 1; beta goes from 0, no correction, to 1, all of it"


class ReplayConfig(StrictConfig):
    """What the agent remembers."""

    capacity: Positive
    """How many transitions are kept; the oldest are overwritten."""
    on_device: bool
    """Keep them on the device that computes, rather than in main memory."""
    prioritised: PrioritisedConfig | None
    """Draw the surprising ones more often; null draws all alike."""


class OffPolicyConfig(RLConfig):
    """What every agent that learns from a replay buffer has."""

    schedule: Literal["steps", "epochs"]
    """Which of the two sections below the run follows."""
    steps: StepsConfig | None
    """The run counted in optimisation steps; needed with schedule: steps."""
    epochs: OffPolicyEpochsConfig | None
    """The run counted in epochs; needed with schedule: epochs."""
    network: NetworkSection
    """The body of each network."""
    replay: ReplayConfig
    """What the agent remembers."""
    n_step: Positive
    """How many rewards are added up before the value of a state is asked."""
    batch_size: Positive
    """How many transitions one update learns from."""
    learning_starts: Count
    """How many env steps are taken, at random where the agent can, before the first update."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        chosen = getattr(self, self.schedule)
        if chosen is None:
            yield f"'schedule' is {self.schedule}, but the section '{self.schedule}' is null; fill it in"
            return
        if self.batch_size > self.replay.capacity:
            yield (
                f"'batch_size' is {self.batch_size}, more than replay.capacity {self.replay.capacity}"
                " can hold; make it smaller or the capacity larger"
            )
        if isinstance(chosen, OffPolicyEpochsConfig):
            yield from self._epoch_problems(chosen)
        else:
            yield from self._step_problems(chosen)

    def _epoch_problems(self, epochs: OffPolicyEpochsConfig) -> Iterator[str]:
        if self.learning_starts >= epochs.max_env_steps:
            yield (
                f"'learning_starts' is {self.learning_starts}, but the run ends at"
                f" epochs.max_env_steps {epochs.max_env_steps}: it would never learn; lower the first"
            )
        per_epoch = epochs.steps_per_epoch * self.num_envs
        yield from epochs_never_reached(epochs, -(-epochs.max_env_steps // per_epoch))

    def _step_problems(self, steps: StepsConfig) -> Iterator[str]:
        yield from steps_never_reached(steps, steps.max_opts)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps each env takes in an epoch."""
        assert self.epochs is not None
        return self.epochs.steps_per_epoch

    @property
    def run_opts(self) -> int:
        """How many optimisation steps the run has, or about so many."""
        if self.schedule == "steps":
            assert self.steps is not None
            return self.steps.max_opts
        assert self.epochs is not None
        return int(self.epochs.max_env_steps * self.epochs.updates_per_env_step)

    @property
    def run_env_steps(self) -> int:
        """How many env steps the run has, or about so many."""
        if self.schedule == "steps":
            assert self.steps is not None
            return self.learning_starts + self.steps.max_opts * self.steps.opt_interval
        assert self.epochs is not None
        return self.epochs.max_env_steps


class TargetConfig(StrictConfig):
    """How the target network follows."""

    every_opt_steps: Positive
    """After how many optimisation steps it moves."""
    share: Share
    """How far it moves towards the network that learns; 1 copies it."""


class ExplorationConfig(StrictConfig):
    """How an agent with values for each action tries others than the best."""

    kind: Literal["epsilon", "softmax"]
    """epsilon acts at random with this probability; softmax draws by value over this temperature."""
    initial: NonNegativeFloat
    """The probability or temperature at the beginning."""
    schedule: ScheduleSection
    """How it changes with the env steps."""

    def problems(self) -> Iterator[str]:
        """Yield a probability that is none."""
        if self.kind == "epsilon" and self.initial > 1:
            yield f"'initial' is {self.initial}; with epsilon it is a probability, 1 at most"


__all__ = [
    "Count",
    "Discount",
    "EvaluationConfig",
    "ExplorationConfig",
    "Fraction",
    "OffPolicyConfig",
    "RLConfig",
    "Scheduled",
    "Share",
    "TargetConfig",
]
