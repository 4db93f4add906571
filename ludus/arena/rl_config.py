"""The parameters of RL in the arena: rollouts, updates, evaluation, pretraining."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from ludus.arena.agents.agent import AgentParameters
from ludus.arena.analyser import AnalyserSection
from ludus.arena.config import HyperParameters, JudgingParameters
from ludus.arena.rules import SubParameters
from ludus.config.base import Count, Positive, Share
from ludus.config.minibatches import undivided
from ludus.config.sections import kind_of
from ludus.nn.engines.choice import EngineKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import too_long


class EvaluationParameters(JudgingParameters):
    """The evaluation of the agents while they train, on data that they do not learn from."""

    episodes: Positive
    """The number of episodes of an evaluation, about as many of the first validation data."""
    actions: Literal["greedy", "sampled"]
    """Evaluate the most likely actions (greedy), or actions drawn as in training (sampled)."""


class RlParameters(SubParameters):
    """The parameters of every RL trainer of the arena."""

    rollouts_per_iteration: Positive
    """The number of parallel environments in an iteration: an episode each, for a protocol that
    has rounds."""
    steps_per_env_per_iteration: Positive | None
    """The number of steps of each environment in an iteration, with a reset where an episode ends; null
    where the protocol's rounds decide it.
    """
    num_epochs: Positive
    """The number of epochs over the steps of an iteration."""
    minibatch_size: Positive
    """The number of steps in a minibatch."""
    gamma: Share
    """The discount factor."""
    gae_lambda: Share
    """The lambda of GAE: 0 looks one step ahead, 1 to the end of the episode."""
    shared_body: bool
    """Share one body between policy and value of an agent; false gives each its own."""
    loss_critic_type: Literal["smooth_l1", "l2", "l1"] | None
    """The loss between a value and its target; null where no value is trained."""
    num_test_iterations: Count
    """The number of iterations of test episodes after training; 0 means no test."""

    _num_iterations: int = PrivateAttr(0)

    @property
    def num_iterations(self) -> int:
        """The number of training iterations: `max_iterations` of the file."""
        return self._num_iterations


class PretrainingParameters(SubParameters):
    """The bodies to pretrain, and for how long."""

    agents: Annotated[list[str], Field(min_length=1)]
    """The agents whose bodies are pretrained: those of policy and value alike, where an agent has both.
    They learn at the rate of the optimizer below, whatever their learning_rate_factors and update_schedule.
    """
    iterations: Positive
    """The number of passes over the training data."""
    batch_size: Positive
    """The number of data per update; the last batch of a pass has the rest."""
    optimizer: OptimizerSection
    """The optimizer of pretraining; max_grad_norm is that of the run."""

    def problems_with(self, agents: Mapping[str, AgentParameters]) -> Iterator[str]:
        """Yield problems of the names, given all agents."""
        for name in self.agents:
            path, section = f"'pretraining.agents' names {name}", agents.get(name)
            lender = getattr(section, "shares_body_of", None)
            if section is None:
                yield f"{path}, which is no agent; there are {', '.join(agents)}"
            elif getattr(section, "body", None) is None:
                yield f"{path}, an agent of kind {section.kind}, which has no body; leave it out"
            elif self.agents.count(name) > 1:
                yield f"{path} twice; name it once"
                return
            elif lender is not None and lender not in self.agents:
                yield f"{path}, whose body is that of {lender}; name {lender} too, or instead"


class RlHyperParameters(HyperParameters):
    """Further parameters of RL trainers of the arena."""

    max_iterations: Positive
    """The number of training iterations, each of rollouts and the updates that follow them."""
    rl: RlParameters
    """Rollouts, advantages and updates."""
    engine: EngineKey
    """The engine of the update: auto chooses tape or graph by the device, eager calls it, tape (the CPU)
    and graph (CUDA) replay it without Python, compiled uses torch.compile, which takes minutes.
    """
    log_every_iterations: Count
    """Write a record every so many iterations, and after an evaluation; 0 means only then and at the end."""
    keep_every_iterations: Count
    """Keep the weights in models/<opt_steps> every so many iterations; 0 means never."""
    evaluate_every_iterations: Count
    """Evaluate every so many iterations, and after the last; 0 means never."""
    evaluation: EvaluationParameters
    """How the agents are evaluated while they train."""
    pretraining: PretrainingParameters | None
    """Pretrain the bodies of agents to classify the data; null: no pretraining."""
    analysers: list[AnalyserSection]
    """Analysers of all rollouts, whose metrics are logged, each kind once; [] is none."""

    @model_validator(mode="after")
    def _set_num_iterations(self) -> RlHyperParameters:
        self.rl._num_iterations = self.max_iterations
        return self

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        before = list(super().problems())
        yield from before
        if before or list(self.scenario.problems()):
            return
        yield from self.problems_of_evaluation()
        yield from self._problems_of_pieces()
        yield from self._problems_of_values()
        yield from self._problems_of_turns()
        if self.pretraining is not None:
            yield from self.pretraining.problems_with(self.agents)
            if self.start is not None and self.start.frozen:
                yield (
                    "'start.frozen' freezes parts of agents, whose bodies 'pretraining' trains; set one of"
                    " them to null"
                )
        yield from self._problems_of_analysers()
        if not self.frames_per_batch:
            return
        yield from self.problems_of_learning(self.max_iterations)
        yield from too_long(
            self.learning_rate_schedule,
            "learning_rate_schedule",
            self.run_opts,
            "optimisation steps",
        )
        yield from self.problems_of_intervals()

    def _problems_of_analysers(self) -> Iterator[str]:
        kinds = [kind_of(section) for section in self.analysers]
        for kind in sorted({kind for kind in kinds if kinds.count(kind) > 1}):
            yield f"'analysers' names {kind} {kinds.count(kind)} times; once is enough"

    @property
    def trains_values(self) -> bool:
        """Whether the trainer's loss trains the value heads."""
        return True

    def _problems_of_values(self) -> Iterator[str]:
        kind = self.rl.loss_critic_type
        if self.trains_values and kind is None:
            yield "'rl.loss_critic_type' is null, but values are trained; set it to smooth_l1"
        if not self.trains_values and kind is not None:
            yield f"'rl.loss_critic_type' is {kind}, but no value is trained; set it to null"
        if not self.trains_values and not self.rl.shared_body:
            yield "'rl.shared_body' is false, but no value is trained that needs a body; set it to true"

    def _problems_of_turns(self) -> Iterator[str]:
        handler = self.handler()
        if not handler.has_rounds or handler.rules.force_guess is None:
            return
        rounds, variants = range(handler.max_message_rounds), range(handler.num_variants)
        if not any(any(handler.turn(r, v).values()) for r in rounds for v in variants):
            yield (
                f"'protocol.force_guess' is {handler.rules.force_guess}, but nobody speaks under"
                f" {self.protocol.kind}: without decisions nothing is left to learn; set it to null"
            )

    def _problems_of_pieces(self) -> Iterator[str]:
        rl, has_rounds = self.rl, self.handler().has_rounds
        if rl.steps_per_env_per_iteration is not None and has_rounds:
            yield (
                f"'rl.steps_per_env_per_iteration' is {rl.steps_per_env_per_iteration}, but a protocol's"
                " rounds say how many steps an episode has; set it to null"
            )
        if rl.steps_per_env_per_iteration is None and not has_rounds:
            yield (
                "'rl.steps_per_env_per_iteration' is null, but an env has no rounds that say how many steps"
                " it takes in an iteration; set it, to 128 say"
            )
            return
        count = self.frames_per_batch
        if count % rl.minibatch_size:
            product, of = "rollouts x rounds, or steps", "an iteration"
            keys = {"key": "rl.minibatch_size", "of": of}
            yield undivided(rl.minibatch_size, count, "steps", product, **keys)

    @property
    def frames_per_batch(self) -> int:
        """The number of steps of all environments in an iteration."""
        handler = self.handler()
        given = self.rl.steps_per_env_per_iteration
        steps = handler.max_message_rounds if handler.has_rounds else given or 0
        return self.rl.rollouts_per_iteration * steps

    @property
    def opts_an_iteration(self) -> int:
        """The number of optimization steps per iteration."""
        return self.rl.num_epochs * (self.frames_per_batch // self.rl.minibatch_size)

    @property
    def run_opts(self) -> int:
        """The number of optimization steps of the run."""
        return self.max_iterations * self.opts_an_iteration
