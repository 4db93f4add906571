"""The config sections that all agents share: envs, evaluation, normalisation, epochs."""

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
    """A number that changes with the steps."""

    initial: NonNegativeFloat
    """Its value at the beginning."""
    schedule: ScheduleSection
    """How it goes on from there."""


class AgentEvaluationConfig(EvaluationConfig):
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
    timeout_seconds: PositiveFloat | None
    """How long an asynchronous evaluation may take before its process counts as hung; else null."""
    target: float | None
    """Stop as soon as an evaluation's mean return reaches this; null goes on to the end."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make meaningless, and names that no metric can have."""
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
    """Bring observations and rewards to a common size, by running statistics."""

    observations: bool
    """Shift and scale each number of an observation to mean 0 and deviation 1."""
    rewards: bool
    """Divide rewards by the deviation of the discounted return."""
    clip: PositiveFloat
    """Cut each normalised number off at this distance from zero, every reward of an n-step sum by
    itself."""

    def problems(self) -> Iterator[str]:
        """Yield a section that does nothing."""
        if not self.observations and not self.rewards:
            yield "neither observations nor rewards are normalised; set the whole section to null"


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
    learning_rate_schedule: ScheduleSection
    """How the learning rate changes with the optimisation steps, from the optimizer's own."""
    max_grad_norm: PositiveFloat | None
    """Shorten a gradient that is longer than this; null leaves it."""
    precision: Literal["float32", "bfloat16"]
    """What the networks compute in; weights stay float32."""
    engine: EngineKey
    """What executes the update: auto chooses by length and device, eager calls it, tape (the CPU) and
    graph (CUDA) replay it without Python, compiled makes one function of it, some seconds at the start."""
    evaluation: AgentEvaluationConfig
    """How the agent is judged."""
    return_window: Positive
    """How many of the latest training episodes rollout/ep_rew_mean is the mean of."""

    @property
    def highest_rate(self) -> float:
        """The largest learning rate that the schedule comes to."""
        return highest(self.learning_rate_schedule, self.optimizer.learning_rate)

    def turned_off(self, section: str, keys: Sequence[str], evaluated: str) -> dict[str, Any]:
        """Return the values with which a run that never comes to these intervals is right.

        `evaluated` is the interval of evaluations: what only they decide goes with them.
        """
        off: dict[str, Any] = {f"{section}.{key}": 0 for key in keys}
        if evaluated in keys or not getattr(getattr(self, section), evaluated):
            never = {"patience": None, "target": None, "min_delta": 0.0}
            set_here = [key for key in never if getattr(self.evaluation, key) != never[key]]
            off |= {f"evaluation.{key}": never[key] for key in set_here}
        return off

    def length_problems(self, run_opts: int, evaluated: tuple[str, int]) -> Iterator[str]:
        """Yield each key that a run of so many updates never comes to.

        `evaluated` is the key that says how often the agent is evaluated, and its value.
        """
        yield from too_long(
            self.learning_rate_schedule, "learning_rate_schedule", run_opts, "optimisation steps"
        )
        yield from self.evaluation.unused(*evaluated)


class EpochsConfig(StrictConfig):
    """A run counted in epochs, each some env steps and then some updates."""

    max_env_steps: Positive
    """The run ends with the epoch in which this many env steps are reached."""
    log_every_epochs: Count
    """Write a record every so many epochs; 0 means never."""
    evaluate_every_epochs: Count
    """Evaluate every so many epochs, but not in the first; 0 means never."""
    keep_every_epochs: Count
    """Keep the weights in models/<opt_steps> every so many epochs; 0 means never."""
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
