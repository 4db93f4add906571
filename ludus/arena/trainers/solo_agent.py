"""The trainer kind `solo_agent`: each agent learns alone to classify the data, supervised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from ludus.arena import loading
from ludus.arena.learning.update import GradientUpdate
from ludus.arena.learning.weights import AgentWeights
from ludus.arena.solo.parameters import SoloHyperParameters
from ludus.arena.solo.students import SoloUpdate, Students, passes_over
from ludus.arena.trainer import TensorDictTrainer
from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.core.errors import ConfigError, Interrupted
from ludus.fit.preflight import refuse_episodes
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.nn.schedules import Schedule, too_long
from ludus.nn.swapped_weights import swapped_weights
from ludus.seeds import derive, forked
from ludus.session.begun import begin, engine_options, in_whole
from ludus.session.reports import Reports
from ludus.show.progress import IterationContext, attach_progress_bar

GUARD = DivergenceGuard(remedy="look at the data of the scenario")


@register_trainer("solo_agent")
class SoloAgentTrainer(TensorDictTrainer):
    """Agents learn by cross-entropy to say the label of a datum that they see alone.

    train
      iteration x max_iterations    one pass over the data
        batch x batches
          train_step
        evaluate (every k iterations, and after the last)
        record (every k iterations, and after an evaluation)
        save (every k iterations)
      test
      save_models
    """

    Config = SoloHyperParameters
    starting, weights_of = loading.starting, loading.weights_of
    saved_training = staticmethod(GradientUpdate.saved_training)
    trainer_type: ClassVar[str] = "solo_agent"
    # The order of an iteration is recomputed.
    derived: ClassVar[tuple[str, ...]] = ("_passes",)
    config: SoloHyperParameters

    def prepare(self, *, max_steps: int | None) -> None:
        """Build data, agents, update and judge from the config."""
        self._build()
        instance, names = self.scenario_instance, self.agents.names
        train, section = instance.train_dataset, self.config.solo_agent
        rounds = instance.protocol_handler.max_message_rounds
        self.students = Students(self.agents, max_message_rounds=rounds)
        self._passes = passes_over(self.students, train, section.batch_size, self.config.seed)
        shorten = partial(in_whole, unit="iteration", opts_each=self._passes.count)
        self.config, self.notes = begin(self.config, self.run.files, max_steps, shorten)
        config = self.config
        self.num_train_steps = config.max_iterations * self._passes.count
        for problem in too_long(
            config.learning_rate_schedule,
            "learning_rate_schedule",
            self.num_train_steps,
            "optimisation steps",
        ):
            raise ConfigError(problem)
        self.rate = Schedule(
            config.learning_rate_schedule,
            initial=config.optimizer.learning_rate,
            run_steps=self.num_train_steps,
        )
        self.students.observe(train)
        self.update = SoloUpdate(
            self.students,
            config.optimizer,
            max_grad_norm=config.max_grad_norm,
            highest_rate=config.highest_rate,
            rates=self.agents.rates(),
            start=config.start,
        )
        self.learner = self.update.learner
        engine = self.update.choose(config.engine, **engine_options(self.run))
        self.config = config.replace(engine=engine)
        self.judge = _judge(config, names)
        self._reports = Reports(
            GUARD,
            self.update,
            evaluate=self._evaluate,
            take=self._take_metrics,
            weights=self.weights,
            judge=self.judge,
        )

    def plan(self) -> Repeat:
        """Return passes over the data, then the test."""
        if type(self).train is not TensorDictTrainer.train:
            return super().plan()
        is_own = type(self)._run_train_loop is not SoloAgentTrainer._run_train_loop
        step = Stage(name="train_step", work=self._train_step)
        work = self._reports
        then = self.config.follow_ups(evaluate=work.evaluate, record=work.record, save=work.save)
        iteration = Repeat(
            name="iteration",
            times=self.config.max_iterations,
            body=(Repeat(name="batch", times=self._passes.count, body=(step,)), *then),
        )
        own = self._as_stage("run_train_loop", self._train_in_context)
        body = (
            *self._first_nodes(),
            own if is_own else iteration,
            Stage(name="test", work=lambda run: self._test_in_context(), always=True),
            Stage(name="save_models", work=lambda run: self._save_models(), always=True),
        )
        return Repeat(name="train", times=1, body=body)

    @attach_progress_bar(lambda self: self.config.max_iterations)
    def _run_train_loop(self, iteration_context: IterationContext) -> None:
        """Run all iterations; for overriding. Where it is not overridden the plan runs them."""
        iteration_context.set_description("Training")
        for _ in range(self.config.max_iterations):
            if self.run.interrupted:
                raise Interrupted
            for index in range(self._passes.count):
                batch = self._next_batch(index)
                self.train_step(batch, index)
                self._count(batch, index)
            iteration_context.step()

    @attach_progress_bar(lambda self: len(self.config.agents))
    def _run_test_loop(self, iteration_context: IterationContext) -> None:
        """Log the accuracy of every agent on the test data."""
        iteration_context.set_description("Testing")
        found = self._accuracies("test", iteration_context.step)
        self.run.record({f"test/{name}": value for name, value in found.items()})
        self.run.log.write(self.run)

    def _accuracies(self, name: str, step: Callable[[], None]) -> dict[str, float]:
        """Return the accuracy of each agent on one of the datasets, and the mean of all agents."""
        dataset, size = (
            getattr(self.scenario_instance.datasets, name),
            self.config.solo_agent.batch_size,
        )
        each: dict[str, float] = {}
        for agent in self.agents.names:
            each[agent] = self.students.accuracy(
                agent, dataset, size, is_interrupted=lambda: self.run.interrupted
            )
            step()
        mean = sum(each.values()) / len(each)
        return {"accuracy": mean, **{f"{agent}/accuracy": one for agent, one in each.items()}}

    def _train_step(self, run: Run) -> None:
        with ExitStack() as stack:
            self._build_train_context(stack)
            index = run.round("batch")
            batch = self._next_batch(index)
            self.train_step(batch, index)
            self._count(batch, index)

    def _next_batch(self, index: int) -> Sequence[Tensor]:
        """Return a batch of this iteration, with the agents learning that are due by its number."""
        iteration = self.run.counters["iteration"]
        for name, section in self.config.agents.items():
            self.update.set_learning(name, section.update_schedule.is_learning(iteration))
        return self._passes(iteration, index)

    def _count(self, batch: Sequence[Tensor], index: int) -> None:
        counters = self.run.counters
        counters["opt_steps"] += 1
        counters["examples"] += len(batch[-1])
        counters["iteration"] += index == self._passes.count - 1

    def train_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Learn from one batch: its data, then its labels; override it to learn in another way."""
        self.update.step(batch, learning_rate=self.rate(self.run.counters["opt_steps"]))

    def _evaluate(self, run: Run) -> Mapping[str, float]:
        with self._as_tested(), forked(derive(self.config.seed, "arena/evaluated")):
            found = self._accuracies("validation", _no_step)
        return {f"eval/{name}": value for name, value in found.items()}

    def _take_metrics(self, run: Run) -> dict[str, float]:
        """Return the accumulated metrics, and reset them."""
        rate = self.rate(run.counters["opt_steps"])
        return {**self.update.take_metrics(), "train/learning_rate": rate}

    def parts(self) -> Mapping[str, Stateful]:
        """Return all parts that are saved and restored."""
        return {"update": self.update, "judge": self.judge}

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the accuracies of saved weights on held-out test data."""
        refuse_episodes(episodes, seed)
        with swapped_weights(AgentWeights(self.agents), weights), self._as_tested():
            found = self._accuracies("test", _no_step)
        return {f"eval/{name}": value for name, value in found.items()}


def _judge(config: SoloHyperParameters, names: Collection[str]) -> Judge:
    """Return the judge: by the mean of all accuracies, and where there are several agents, by each."""
    section = config.evaluation
    first = Score(
        "accuracy",
        "eval/accuracy",
        "max",
        patience=section.patience,
        min_delta=section.min_delta,
        target=section.target,
    )
    each = [Score(name, f"eval/{name}/accuracy", "max") for name in names if len(names) > 1]
    return Judge(first, *each)


def _no_step() -> None:
    """Show no progress."""
