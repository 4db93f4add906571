"""The trainer kind `solo_agent`: each agent learns alone to classify the data, supervised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

from torch import Tensor

from ludus.arena.learning.noted import Noted
from ludus.arena.learning.weights import AgentWeights, of_agents
from ludus.arena.plan import after_an_iteration
from ludus.arena.solo.parameters import SoloHyperParameters
from ludus.arena.solo.plan import make_solo_plan
from ludus.arena.solo.students import Passes, SoloUpdate, Students
from ludus.arena.trainer import TensorDictTrainer
from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stateful
from ludus.core.errors import ConfigError, Interrupted
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge
from ludus.judge.score_state import Best
from ludus.judge.scores import Score
from ludus.nn.engines.choice import Subject, choose_engine
from ludus.nn.engines.unsaved import PlainState
from ludus.nn.schedules import Schedule, too_long
from ludus.nn.swapped_weights import swapped_weights
from ludus.seeds import derive, forked
from ludus.session.begun import as_begun, changes_by_fit, has_begun
from ludus.show.progress import IterationContext, attach_progress_bar

GUARD = DivergenceGuard(remedy="look at the data of the scenario")


@register_trainer("solo_agent")
class SoloAgentTrainer(Noted, TensorDictTrainer):
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
    trainer_type: ClassVar[str] = "solo_agent"
    # The order of an iteration is recomputed.
    derived: ClassVar[tuple[str, ...]] = ("_passes", "_plain_state")
    config: SoloHyperParameters

    def prepare(self, *, max_steps: int | None) -> None:
        """Build data, agents, update and judge from the config."""
        notes: list[str] = []
        self.config = as_begun(self.config, self.run.files, notes)
        self._build()
        instance, names = self.scenario_instance, self.agents.names
        size = self.config.solo_agent.batch_size
        train = instance.train_dataset
        self._passes = Passes(train, self.agents.data_names, size, self.config.seed)
        self._notes = [*notes, *self._shortened(max_steps)]
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
        rounds = instance.protocol_handler.max_message_rounds
        self.students = Students(self.agents, max_message_rounds=rounds)
        self.students.observe(train)
        self.update = SoloUpdate(
            self.students,
            config.optimizer,
            max_grad_norm=config.max_grad_norm,
            highest_rate=config.highest_rate,
            rates=self.agents.rates(),
        )
        self.learner = self.update.learner
        self.judge = _judge(config, names)
        self._choose_engine()

    def _shortened(self, max_steps: int | None) -> list[str]:
        """Set the length that `fit` asks for, in whole iterations; return the other changes."""
        if max_steps is None:
            return []
        if max_steps < 1:
            raise ConfigError(f"fit was given max_steps={max_steps}; a run has one step at least")
        each = self._passes.count
        count = -(-max_steps // each)
        changes = self.config.model_copy(update={"max_iterations": count}).unreached()
        given = f"for fit(max_steps={max_steps})"
        notes = changes_by_fit(self.config, changes, max_steps)
        if count * each != max_steps:
            notes.append(
                f"{given} the run makes {count * each} optimisation steps, {count} whole iterations of"
                f" {each}"
            )
        self.config = self.config.replace(max_iterations=count, **changes)
        return notes

    def _choose_engine(self) -> None:
        self._plain_state = PlainState(self.agents)
        update = self.update
        chosen = choose_engine(
            self.config.engine,
            Subject(update._update, self.students, [self.students], self.device, lambda: None),
            is_long=False,
            has_begun=has_begun(self.run.files),
            tell=lambda note: self.run.tell(note, event="engine"),
        )
        update.update = chosen.by(update._update)
        self.config = self.config.replace(engine=chosen.engine)
        self._engine_notes = list(chosen.notes)

    def plan(self) -> Repeat:
        """Return passes over the data, then the test."""
        if type(self).train is not TensorDictTrainer.train:
            return super().plan()
        is_own = type(self)._run_train_loop is not SoloAgentTrainer._run_train_loop
        return make_solo_plan(
            self.config,
            self._passes.count,
            train_step=self._train_step,
            then=after_an_iteration(
                self.config, evaluate=self._evaluate, record=self._record, keep=self._save
            ),
            test=lambda run: self._test_in_context(),
            save_models=lambda run: self._save_models(),
            first=self._first_nodes(),
            train_loop=(lambda run: self._train_in_context()) if is_own else None,
        )

    @attach_progress_bar(lambda self: self.config.max_iterations)
    def _run_train_loop(self, iteration_context: IterationContext) -> None:
        """Run all iterations; for overriding. Where it is not overridden the plan runs them."""
        iteration_context.set_description("Training")
        for _ in range(self.config.max_iterations):
            if self.run.interrupted:
                raise Interrupted
            for index in range(self._passes.count):
                self._learn(self.run, index)
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
            self._learn(run, run.round("batch"))

    def _learn(self, run: Run, index: int) -> None:
        iteration, is_last = run.counters["iteration"], index == self._passes.count - 1
        for name, section in self.config.agents.items():
            self.update.set_learning(name, section.update_schedule.is_learning(iteration))
        columns = self._passes(iteration, index)
        self.update.learn(columns, learning_rate=self.rate(run.counters["opt_steps"]))
        run.counters["opt_steps"] += 1
        run.counters["examples"] += len(columns[-1])
        run.counters["iteration"] += is_last

    def _evaluate(self, run: Run) -> Mapping[str, float]:
        if GUARD.diverged(self.update.metrics()) is not None:
            return {}  # it must not become the best; the record that follows ends the run
        with self._as_tested(), forked(derive(self.config.seed, "arena/evaluated")):
            found = self._accuracies("validation", _no_step)
        metrics = {f"eval/{name}": value for name, value in found.items()}
        self.judge.update(run, metrics, lambda score: self.weights())
        return metrics

    def _record(self, run: Run) -> None:
        """Write the accumulated metrics, and reset them."""
        opts = run.counters["opt_steps"]
        metrics = {**self.update.take_metrics(), "train/learning_rate": self.rate(opts)}
        run.record(metrics)
        run.log.write(run)
        GUARD.check(metrics, opts)

    def _save(self, run: Run) -> None:
        counters = {name: value for name, value in run.counters.items() if value}
        name = f"models/{run.counters['opt_steps']}"
        run.keep_model(name, self.weights(), {"counters": counters})

    def parts(self) -> Mapping[str, Stateful]:
        """Return all parts that are saved and restored."""
        return {"update": self.update, "judge": self.judge}

    def best(self) -> Mapping[str, Any] | None:
        """Return metric, score and path of the best agents so far, by the mean of their accuracies."""
        return self.judge.best if hasattr(self, "judge") else None

    def more_bests(self) -> Mapping[str, Best]:
        """Return the same for each agent, where there are several."""
        return self.judge.more_bests if hasattr(self, "judge") else {}

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the best agents: their weights are lost, or in another run's directory."""
        self.judge.forget_models(names)

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Return the weights of the agents in a saved state."""
        return of_agents(state["update"]["learner"]["weights"], self.agents)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the accuracies of saved weights on held-out test data."""
        if episodes is not None or seed is not None:
            raise ConfigError(
                "this run was trained on data, not in episodes: --episodes and --seed do not apply"
            )
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
