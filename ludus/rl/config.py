"""Config sections of agents: envs, evaluation, normalisation, lengths, rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from ludus.config.base import (
    Count,
    Positive,
    PositiveFloat,
    StrictConfig,
    TrainerConfig,
)
from ludus.config.evaluation import EvaluationConfig
from ludus.config.minibatches import undivided
from ludus.config.start import AgentStartConfig
from ludus.core.intervals import never_reached
from ludus.envs.config import EnvSection
from ludus.nn.engines.choice import EngineKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection, highest, too_long
from ludus.rl.networks._body import NetworkSection
from ludus.rl.sampling.normalise import NormaliseConfig

Discount = Annotated[float, Field(ge=0, le=1)]


class AgentEvaluationConfig(EvaluationConfig):
    """Evaluation: the episodes, the best model, early stopping."""

    env: EnvSection | None
    """The evaluation env; null is the training env without the wrappers that change rewards."""
    more_envs: dict[str, EnvSection]
    """Further evaluation envs by name: logged as eval/<name>/return_mean, not part of the score."""
    episodes: Positive
    """Number of episodes per evaluation; episode i has the same seed every time."""
    envs: Positive
    """Number of envs that play them in parallel."""
    actions: Literal["greedy", "sampled"]
    """Greedy actions, or actions sampled as at the end of training."""
    max_episode_length: Positive
    """Truncate an episode after this many steps, for envs without a time limit."""
    asynchronous: bool
    """Evaluate in a separate process while training continues; the result is read at the next one."""
    timeout_seconds: PositiveFloat | None
    """Seconds after which the process of an asynchronous evaluation counts as hung; else null."""
    target: float | None
    """Stop the run once an evaluation's mean return reaches this; null never does."""

    def problems(self) -> Iterator[str]:
        """Yield keys without effect under the others, and names that are not valid in a metric."""
        yield from super().problems()
        if self.asynchronous and self.timeout_seconds is None:
            yield "'timeout_seconds' is null, but 'asynchronous' is true; set it, for example to 600.0"
        if not self.asynchronous and self.timeout_seconds is not None:
            yield (
                f"'timeout_seconds' is {self.timeout_seconds:g}, which means nothing where"
                " 'asynchronous' is false; set it to null"
            )
        for name in self.more_envs:
            if not name.isidentifier():
                yield f"'more_envs' has the name '{name}'; use letters, digits and underscores"


class EpochsConfig(StrictConfig):
    """A run counted in epochs, each of env steps followed by updates."""

    evaluated_by: ClassVar[str] = "evaluate_every_epochs"

    max_env_steps: Positive
    """The run ends with the epoch in which this many env steps are reached."""
    log_every_epochs: Count
    """Write a record every this many epochs; 0 means never."""
    evaluate_every_epochs: Count
    """Evaluate every this many epochs, but not in the first; 0 means never."""
    keep_every_epochs: Count
    """Save the weights in models/<opt_steps> every this many epochs; 0 means never."""
    max_opt_steps: Positive | None
    """Stop after this many optimisation steps, even within an epoch; null for no such limit."""

    def too_rare(self, num_epochs: int) -> Iterator[tuple[str, str, int]]:
        """Yield the key of each interval longer than a run of this many epochs, and its limit."""
        # Epoch 0 is never evaluated, and the last epoch has the number num_epochs - 1.
        others = "the first epoch is never evaluated and the number of the others"
        limits = {
            "evaluate_every_epochs": (others, num_epochs - 1),
            "log_every_epochs": ("the number of epochs", num_epochs),
            "keep_every_epochs": ("the number of epochs", num_epochs),
        }
        for key, (limit, most) in limits.items():
            if getattr(self, key) > most:
                yield key, limit, most

    def never_so_many(self, prefix: str, most: int) -> Iterator[str]:
        """Yield a sentence if the run ends, with `most` updates, before its max_opt_steps.

        `prefix` is the path of these keys in the file, with a dot, or empty.
        """
        if self.max_opt_steps is not None and self.max_opt_steps > most:
            yield (
                f"'{prefix}max_opt_steps' is {self.max_opt_steps}, but {prefix}max_env_steps"
                f" {self.max_env_steps} makes {most} optimisation steps: it would never be reached;"
                " raise the latter, or set null for no such limit"
            )

    def count_epochs(self, env_steps: int, epochs_for: Callable[[int], int]) -> int:
        """Return the number of epochs of the run, with this many env steps each.

        `epochs_for` returns the number of epochs for a number of optimisation steps.
        """
        whole = -(-self.max_env_steps // env_steps)
        return whole if self.max_opt_steps is None else min(whole, epochs_for(self.max_opt_steps))

    def num_opts(self, owed: int) -> int:
        """Return the number of optimisation steps of a run that would make this many."""
        return owed if self.max_opt_steps is None else min(owed, self.max_opt_steps)


class StepsConfig(StrictConfig):
    """A run counted in optimisation steps, each after a few env steps."""

    evaluated_by: ClassVar[str] = "evaluate_every_opt_steps"

    update_every_env_steps: Positive
    """Number of env steps between two optimisation steps."""
    log_every_opt_steps: Count
    """Write a record every this many optimisation steps; 0 means never."""
    evaluate_every_opt_steps: Count
    """Evaluate every this many optimisation steps; 0 means never."""
    keep_every_opt_steps: Count
    """Save the weights in models/<opt_steps> every this many optimisation steps; 0 means never."""
    log_agent_info_every_opt_steps: Count
    """Log the norm of each network's weights every this many optimisation steps; 0 means never."""
    log_compute_cost_every_opt_steps: Count
    """Write the time of acting and learning to timing.jsonl every this many optimisation steps; 0: never."""
    max_opt_steps: Positive
    """Number of optimisation steps of the run."""

    def too_rare(self, max_opt_steps: int) -> Iterator[tuple[str, str, int]]:
        """Yield the key of each interval longer than a run of this many updates, and its limit."""
        keys = (
            "evaluate_every_opt_steps", "log_every_opt_steps", "keep_every_opt_steps",
            "log_agent_info_every_opt_steps", "log_compute_cost_every_opt_steps",
        )  # fmt: skip
        for key in keys:
            if getattr(self, key) > max_opt_steps:
                yield key, "steps.max_opt_steps", max_opt_steps


class RLConfig(TrainerConfig):
    """The keys that every agent's config has."""

    may_change: ClassVar[tuple[str, ...]] = ("learning_rate_schedule", "gamma", "max_grad_norm")

    env: EnvSection
    """The env the agent learns in."""
    num_envs: Positive
    """Number of copies of it that are stepped in parallel."""
    step_timeout_seconds: PositiveFloat
    """Seconds after which a step in a worker process counts as hung."""
    normalise: NormaliseConfig | None
    """Normalisation of observations and rewards; null for none."""
    gamma: Discount
    """The discount factor per step."""
    start: AgentStartConfig | None
    """The run to start from; null starts from new weights."""
    optimizer: OptimizerSection
    """The optimizer of the networks."""
    learning_rate_schedule: ScheduleSection
    """How the learning rate changes with the optimisation steps, starting from the optimizer's."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient to this norm; null does not clip."""
    precision: Literal["float32", "bfloat16"]
    """The number type of the networks' computations; weights stay float32."""
    engine: EngineKey
    """The engine that executes the update: auto chooses by run length and device, eager calls it, tape
    (CPU) and graph (CUDA) replay it without Python, compiled compiles it, which takes some seconds."""
    evaluation: AgentEvaluationConfig
    """How the agent is evaluated."""
    return_window: Positive
    """Number of latest training episodes averaged in rollout/ep_rew_mean."""

    @property
    def highest_rate(self) -> float:
        """The largest learning rate of the schedule."""
        return highest(self.learning_rate_schedule, self.optimizer.learning_rate)

    @property
    def counted(self) -> tuple[str, EpochsConfig | StepsConfig, int]:
        """The keys that the run is counted by: their path, which is empty or ends in a dot, the section that
        holds them, and the run's length in its unit.
        """
        raise NotImplementedError

    @property
    def run_opts(self) -> int:
        """Number of optimisation steps of the run, exactly or approximately."""
        raise NotImplementedError

    def length_problems(self) -> Iterator[str]:
        """Yield each key that a run of this length never reaches."""
        prefix, section, length = self.counted
        for key, limit, most in section.too_rare(length):
            yield never_reached(f"{prefix}{key}", getattr(section, key), limit, most)
        schedule = self.learning_rate_schedule
        yield from too_long(schedule, "learning_rate_schedule", self.run_opts, "optimisation steps")
        key = section.evaluated_by
        yield from self.evaluation.unused(f"{prefix}{key}", getattr(section, key))

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never reaches, and its value for never.

        Keys that depend on evaluations are among them if there are none.
        """
        prefix, section, length = self.counted
        off: dict[str, Any] = {f"{prefix}{key}": 0 for key, _, _ in section.too_rare(length)}
        evaluated = section.evaluated_by
        if f"{prefix}{evaluated}" in off or not getattr(section, evaluated):
            never = {"patience": None, "target": None, "min_delta": 0.0}
            set_here = [key for key in never if getattr(self.evaluation, key) != never[key]]
            off |= {f"evaluation.{key}": never[key] for key in set_here}
        return off


# A mixin: its keys are added to those of RLConfig, as in PpoConfig(OnPolicyConfig, RLConfig).
if TYPE_CHECKING:
    _Mixin = RLConfig
else:
    _Mixin = StrictConfig


class OnPolicyConfig(EpochsConfig, _Mixin):
    """The keys of every on-policy agent, in addition to those of RLConfig.

    A run is counted in epochs, each of one rollout and its updates.
    """

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
        most = -(-self.max_env_steps // count) * self._per_epoch
        yield from self.never_so_many("", most)
        yield from self.length_problems()

    @property
    def counted(self) -> tuple[str, EpochsConfig, int]:
        """No section but the config itself, and the number of rollouts."""
        return "", self, self.run_epochs

    @property
    def _per_epoch(self) -> int:
        return self.num_epochs * self.num_minibatches

    def epochs_for(self, max_opt_steps: int) -> int:
        """Return the number of rollouts for this many updates."""
        return -(-max_opt_steps // self._per_epoch)

    @property
    def run_epochs(self) -> int:
        """Number of rollouts of the run."""
        return self.count_epochs(self.rollout_steps * self.num_envs, self.epochs_for)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of each env per epoch."""
        return self.rollout_steps

    @property
    def run_opts(self) -> int:
        """Number of optimisation steps of the run."""
        return self.num_opts(self.run_epochs * self._per_epoch)

    @property
    def batch_size(self) -> int:
        """The minibatch size, by the name that off-policy agents use."""
        return self.minibatch_size

    @property
    def num_minibatches(self) -> int:
        """Number of minibatches per pass over a rollout; each is an update."""
        return self.rollout_steps * self.num_envs // self.minibatch_size
