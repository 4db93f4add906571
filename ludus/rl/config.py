"""Config sections shared by all agents: envs, evaluation, normalisation, epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ludus.config.base import (
    Count,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    StrictConfig,
    TrainerConfig,
)
from ludus.config.evaluation import EvaluationConfig
from ludus.envs.config import EnvSection
from ludus.nn.engines.choice import EngineKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection, highest, too_long

Discount = Annotated[float, Field(ge=0, le=1)]


class Scheduled(StrictConfig):
    """A number with a schedule."""

    initial: NonNegativeFloat
    """Its value at the beginning."""
    schedule: ScheduleSection
    """How it changes with the steps."""


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


class NormaliseConfig(StrictConfig):
    """Normalisation of observations and rewards by running statistics."""

    observations: bool
    """Normalise each component of an observation to mean 0 and standard deviation 1."""
    rewards: bool
    """Divide rewards by the standard deviation of the discounted return."""
    clip: PositiveFloat
    """Clip normalised values to this distance from zero; each reward of an n-step return is clipped
    separately."""

    def problems(self) -> Iterator[str]:
        """Yield a message if the section has no effect."""
        if not self.observations and not self.rewards:
            yield "neither observations nor rewards are normalised; set the whole section to null"


class RLConfig(TrainerConfig):
    """The keys that every agent's config has."""

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

    def turned_off(self, section: str, keys: Sequence[str], evaluated: str) -> dict[str, Any]:
        """Return the values that switch off intervals which the run never reaches.

        `evaluated` is the interval of evaluations: keys that depend on them are switched off too.
        """
        off: dict[str, Any] = {f"{section}.{key}": 0 for key in keys}
        if evaluated in keys or not getattr(getattr(self, section), evaluated):
            never = {"patience": None, "target": None, "min_delta": 0.0}
            set_here = [key for key in never if getattr(self.evaluation, key) != never[key]]
            off |= {f"evaluation.{key}": never[key] for key in set_here}
        return off

    def length_problems(self, run_opts: int, evaluated: tuple[str, int]) -> Iterator[str]:
        """Yield each key that a run of this many updates never reaches.

        `evaluated` is the key that says how often the agent is evaluated, and its value.
        """
        yield from too_long(
            self.learning_rate_schedule, "learning_rate_schedule", run_opts, "optimisation steps"
        )
        yield from self.evaluation.unused(*evaluated)


class EpochsConfig(StrictConfig):
    """A run counted in epochs, each of env steps followed by updates."""

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


__all__ = [
    "AgentEvaluationConfig",
    "Count",
    "Discount",
    "EpochsConfig",
    "NormaliseConfig",
    "RLConfig",
    "Scheduled",
]
