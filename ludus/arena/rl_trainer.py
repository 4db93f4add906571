"""TensorDictRlTrainer: RL on rollouts of a protocol. A subclass defines a loss module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ludus.arena import loading
from ludus.arena.analyser import AnalysedRollouts
from ludus.arena.evaluation import ProtocolEvaluation
from ludus.arena.initialisation.pretraining import make_pretraining
from ludus.arena.learning.estimate import estimate
from ludus.arena.learning.update import ArenaUpdate, GradientUpdate, Learned
from ludus.arena.learning.weights import AgentWeights
from ludus.arena.libraries import TensorDict, TensorDictBase
from ludus.arena.plan import make_plan
from ludus.arena.playing.columns import chosen, kinds_of, to_columns, to_tensordict
from ludus.arena.playing.environment import Environment
from ludus.arena.playing.rollout import roll_out, rows_of, sampled
from ludus.arena.playing.transcript import transcript
from ludus.arena.preflight import checked_terms, made_loss_module, tried
from ludus.arena.rl_config import RlHyperParameters
from ludus.arena.statistics import Meter, critic_statistics
from ludus.arena.trainer import TensorDictTrainer, within
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.core.errors import LudusError
from ludus.data.replay.pending import Form, MinibatchOrder, PendingData
from ludus.judge.divergence import DivergenceGuard
from ludus.nn.learner import Learner
from ludus.nn.schedules import Schedule
from ludus.nn.swapped_weights import SIDE_EFFECTS, restored, swapped_weights
from ludus.seeds import derive, forked, generator
from ludus.session.begun import begin, engine_options, in_whole
from ludus.session.reports import Reports
from ludus.show.progress import IterationContext, attach_progress_bar

GUARD = DivergenceGuard(remedy="lower the rewards of the protocol")


class TensorDictRlTrainer(TensorDictTrainer):
    """Plays episodes, estimates advantages and takes gradient steps by a loss module.

    train
      iteration x max_iterations
        collect                    rollouts of the protocol, by the current agents
        estimate                   advantages, by the estimator
        epoch x num_epochs
          minibatch x minibatches
            train_step
        evaluate (every k iterations, and after the last)
        record (every k iterations, and after an evaluation)
        save (every k iterations)
      test
      save_models

    Define `_get_loss_module_and_gae`. Override `_run_train_loop` or `_run_test_loop` for your own loops;
    each is then one stage.
    """

    starting, weights_of = loading.starting, loading.weights_of
    saved_training = staticmethod(GradientUpdate.saved_training)
    trainer_type: ClassVar[str] = "rl"
    built_by_fit: ClassVar[tuple[str, ...]] = (
        *TensorDictTrainer.built_by_fit,
        *("environment", "loss_module", "gae", "update", "learner", "evaluation", "judge"),
    )
    keeps_episodes_whole: ClassVar[bool] = False
    """Whether minibatches consist of whole episodes, for losses that need more than one step of each."""
    # The order of an epoch is recomputed.
    derived = ("_minibatches", "environment", "evaluation")
    config: RlHyperParameters

    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        """Return a loss module (an Objective, or any LossModule of TorchRL), and its advantage estimator.

        loss_module.make_value_estimator(ValueEstimators.GAE, gamma=..., lmbda=...)
        return loss_module, loss_module.value_estimator
        """
        raise LudusError(
            f"{type(self).__name__} defines no _get_loss_module_and_gae; define it, and return a loss module"
            " and its advantage estimator, or None in its place"
        )

    def prepare(self, *, max_steps: int | None) -> None:
        """Build scenario, agents, loss and evaluation from the config."""
        opts = self.config.opts_an_iteration
        shorten = partial(in_whole, unit="iteration", opts_each=opts)
        self.config, self.notes = begin(self.config, self.run.files, max_steps, shorten)
        config = self.config
        self._build()
        self.environment: Environment = self.scenario_instance.train_environment
        self.loss_module, self.gae = made_loss_module(
            self._get_loss_module_and_gae, type(self).__name__
        )
        self._lay_out()
        self.evaluation = ProtocolEvaluation(config, self.scenario_instance)
        self.judge = self.evaluation.judge()
        schedule, initial = config.learning_rate_schedule, config.optimizer.learning_rate
        self.rate = Schedule(schedule, initial=initial, run_steps=config.run_opts)
        self.num_train_steps = config.run_opts
        self._minibatches = MinibatchOrder(self._shuffled, config.rl.minibatch_size)
        self._num_minibatches = config.frames_per_batch // config.rl.minibatch_size
        num_rows = config.run_opts * config.rl.minibatch_size
        engine = self.update.choose(config.engine, num_rows, **engine_options(self.run))
        self.config = config.replace(engine=engine)
        self.pretraining = make_pretraining(self.config, self.scenario_instance)
        self._reports = Reports(
            GUARD,
            self.update,
            evaluate=self._evaluate,
            take=self._take_metrics,
            weights=self.weights,
            judge=self.judge,
        )

    def _lay_out(self) -> None:
        """Find the columns of rollouts and the terms of the loss, on a few episodes not used for learning."""
        config = self.config
        learned = Learned(self.agents, self.loss_module, self.gae).to(self.device)
        rollouts = tried(self.agents, self.environment, seed=config.seed, device=self.device)
        stored = to_columns(rollouts)
        self.watched = AnalysedRollouts(config.analysers)
        found = self.watched(rollouts, self.environment)
        with forked(), restored(learned, what=("weights", *SIDE_EFFECTS)):
            rows = self._estimated(rollouts)
            filled = self._filled(rows)
            with torch.enable_grad(), checked_terms(learned.objective, filled):
                learned.lay_out(to_tensordict(filled, 1), list(filled))
        self.meter = Meter([*found, *critic_statistics(rollouts, self.environment)], self.device)
        self.update = ArenaUpdate(
            learned,
            config.optimizer,
            max_grad_norm=config.max_grad_norm,
            highest_rate=config.highest_rate,
            rates=self.agents.rates(),
            start=config.start,
        )
        shape = config.rl.rollouts_per_iteration, self.environment.num_steps
        form = Form(to_columns, partial(to_tensordict, num_dims=2))
        self.pending_rollouts = PendingData(
            self.device,
            {"rollouts": form},
            rollouts=kinds_of(stored, shape, 2),
            rows=kinds_of(rows, (shape[0] * shape[1],), 1),
        )

    @property
    def learner(self) -> Learner:
        """The learner: the weights of all agents, and their optimizer."""
        return self.update.learner

    def plan(self) -> Repeat:
        """Return iterations of episodes and updates, then the test."""
        own = type(self)
        has_context = own._build_train_context is not TensorDictRlTrainer._build_train_context
        build = self._build_train_context if has_context else None
        if own.train is not TensorDictTrainer.train:
            return super().plan()
        has_loop = own._run_train_loop is not TensorDictRlTrainer._run_train_loop
        loop = (lambda run: self._train_in_context()) if has_loop else None
        return make_plan(
            self.config,
            collect=within(build, self._collect),
            estimate=within(build, self._estimate),
            train_step=within(build, self._train_step),
            then=self._after_an_iteration(),
            test=lambda run: self._test_in_context(),
            save_models=lambda run: self._save_models(),
            train_loop=loop,
            first=self._first_nodes(),
        )

    def _after_an_iteration(self) -> tuple[Stage, ...]:
        work = self._reports
        return self.config.follow_ups(evaluate=work.evaluate, record=work.record, save=work.save)

    def _build_train_context(self, stack: ExitStack) -> None:
        """Enable gradients; an update sets the mode of the agents itself, and rollouts have none."""
        stack.enter_context(torch.enable_grad())

    @attach_progress_bar(lambda self: self.config.max_iterations)
    def _run_train_loop(self, iteration_context: IterationContext) -> None:
        """Run all iterations; for overriding. Where it is not overridden the plan runs them."""
        iteration_context.set_description("Training")
        run, rl, then = self.run, self.config.rl, self._after_an_iteration()
        while run.counters["iteration"] < self.config.max_iterations and not run.is_ending:
            self._collect(run)  # returns early where the run is interrupted
            self._estimate(run)
            for epoch in range(rl.num_epochs):
                for index in range(self._num_minibatches):
                    self._train_step(run, (epoch, index))
            for stage in then:
                if (
                    (stage.always or not run.is_ending)
                    and stage.when is not None
                    and stage.when(run)
                ):
                    run.record(stage.work(run))
            iteration_context.step()

    @attach_progress_bar(lambda self: self.config.rl.num_test_iterations)
    def _run_test_loop(self, iteration_context: IterationContext) -> None:
        """Play test episodes on held-out data, and log their statistics."""
        iteration_context.set_description("Testing")
        count = iteration_context.num_iterations
        if count:
            found = self.evaluation.test(self.run, count, iteration_context.step)
            self.run.record({f"test/{name}": value for name, value in found.items()})
            self.run.log.write(self.run)

    def _collect(self, run: Run) -> None:
        iteration = run.counters["iteration"]
        for name, section in self.config.agents.items():
            self.update.set_learning(name, section.update_schedule.is_learning(iteration))
        self.pending_rollouts.put("rollouts", self._roll_out(iteration))
        run.counters["env_steps"] += self.config.frames_per_batch

    def _roll_out(self, iteration: int) -> TensorDict:
        """Return the episodes of one iteration."""
        seed = derive(self.config.seed, "arena/actions", iteration)
        return roll_out(
            self.agents,
            self.environment,
            self.environment.begin(iteration),
            sampled(seed, self.device),
            is_interrupted=lambda: self.run.interrupted,
        )

    def _estimate(self, run: Run) -> None:
        rollouts: TensorDict = self.pending_rollouts.take("rollouts")
        found = self.watched(rollouts, self.environment)
        self.pending_rollouts.put("rows", self._estimated(rollouts))
        self.meter.update({**found, **critic_statistics(rollouts, self.environment)})

    def _estimated(self, rollouts: TensorDictBase) -> dict[str, Tensor]:
        """Return the steps of all envs as rows, with advantages where there is an estimator."""
        if self.gae is not None:
            estimate(self.gae, self.agents, self.environment, rollouts)
        return to_columns(rows_of(rollouts))

    def _shuffled(self, iteration: int, epoch: int) -> Tensor:
        """Return the rows of an epoch, shuffled; those of an episode together where it is kept whole."""
        config, num_steps = self.config, self.environment.num_steps
        together = num_steps if self.keeps_episodes_whole else 1
        number = iteration * config.rl.num_epochs + epoch
        source = generator(config.seed, "arena/minibatches", number)
        firsts = torch.randperm(self.environment.num_envs * num_steps // together, generator=source)
        order = firsts[:, None] * together + torch.arange(together)
        return order.flatten().to(self.device, non_blocking=True)

    def _train_step(self, run: Run, at: tuple[int, int] | None = None) -> None:
        """Update on the minibatch of the plan, or on that of this epoch and index."""
        epoch, index = at or (run.round("epoch"), run.round("minibatch"))
        iteration, last = run.counters["iteration"], self._num_minibatches - 1
        is_last = epoch == self.config.rl.num_epochs - 1 and index == last
        rows = self.pending_rollouts.take("rows", releases=is_last)
        places_M = self._minibatches(iteration, epoch, index)
        self.train_step(dict(zip(rows, chosen(rows, places_M), strict=True)), index)
        if is_last:
            self.agents.observe(self._filled(rows), self.config.learning(iteration))
        run.counters["opt_steps"] += 1
        run.counters["iteration"] += is_last

    def train_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> None:
        """Update on one minibatch of rows; override it to change the update."""
        rate = self.rate(self.run.counters["opt_steps"])
        self.update.step(list(self._filled(batch).values()), learning_rate=rate)

    def _filled(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return rows with the observations that rollouts do not store, in the order of the names."""
        return dict(sorted({**rows, **self.environment.looked_up(rows["index"])}.items()))

    def _evaluate(self, run: Run) -> Mapping[str, float]:
        with self._as_tested(), forked(derive(self.config.seed, "arena/evaluated")):
            found = self.evaluation.validate(run)
        return {f"eval/{name}": value for name, value in found.items()}

    def _take_metrics(self, run: Run) -> dict[str, float]:
        """Return the accumulated metrics, and reset them."""
        metrics = {f"train/{name}": value for name, value in self.meter.take().items()}
        rate = self.rate(run.counters["opt_steps"])
        return metrics | {**self.update.take_metrics(), "train/learning_rate": rate}

    def parts(self) -> Mapping[str, Stateful]:
        """Return all parts that are saved and restored."""
        return {
            "update": self.update,
            "waiting": self.pending_rollouts,
            "meter": self.meter,
            "judge": self.judge,
            **({} if self.pretraining is None else {"pretraining": self.pretraining}),
        }

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the statistics of saved weights on held-out test data.

        `episodes` is their number; None: as many as the run's own test has, or one iteration of them.
        """
        size = self.evaluation.instance.test_environment.num_envs
        count = max(1, self.config.rl.num_test_iterations)
        count = count if episodes is None else -(-episodes // size)
        name = "test" if seed is None else f"test {seed}"
        # Iterations that no run reaches, so that another seed gives other episodes and another order of the
        # data.
        first = 0 if seed is None else 2**20 + derive(seed, "arena/test/first") % 2**20
        with self._spared(weights):
            found = self.evaluation.test(None, count, name=name, first=first, episodes=episodes)
        return {f"eval/{key}": value for key, value in found.items()}

    def narrate(self, weights: Mapping[str, Any], index: int) -> list[str]:
        """Return one test episode of saved weights, message by message."""
        with self._spared(weights):
            return transcript(self.agents, self.evaluation, index)

    @contextlib.contextmanager
    def _spared(self, weights: Mapping[str, Any]) -> Iterator[None]:
        """Load these weights inside the block; agents and generators are restored after it."""
        with swapped_weights(AgentWeights(self.agents), weights):
            with forked(derive(self.config.seed, "arena/played")):
                yield
