"""The supervised trainer: epochs of steps, a validation after each, a test at the end."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from ludus.core import Every, Observer, Repeat, Run, Stage, Stateful
from ludus.core.errors import ConfigError, LudusError
from ludus.core.services import Weights
from ludus.fit.build import make_update
from ludus.fit.length import lengthened
from ludus.fit.loop import Fit
from ludus.fit.preflight import refuse_episodes
from ludus.fit.rate_control import PART, UNSET, RateControl
from ludus.fit.watchers import GUARD, WatchMonitors, make_judge, with_judge
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.judge.divergence import WatchDivergence
from ludus.judge.judge import JudgeLog
from ludus.judge.milestones import Milestones
from ludus.nn.base_weights import base_digest
from ludus.nn.model import Model
from ludus.nn.schedule import OfStep, Schedule
from ludus.nn.swapped_weights import swapped_weights
from ludus.nn.torch_optimizer import Make, TorchMade
from ludus.session.begun import Begun, as_begun, engine_options, has_begun
from ludus.session.device import resolve_device
from ludus.session.logger import WriteLog
from ludus.session.trainer import Trainer
from ludus.supervised import build, loading, measuring, start
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import SplitDatasets, make_datasets, sized_as_given
from ludus.supervised.evaluator import SupervisedEvaluator
from ludus.supervised.short_config import block_of, expand


class BaseTrainer(Trainer):
    """Learns from labelled examples.

    train
      epoch x max_epochs
        step x batches
          train_step
        sum_up
        validate (every evaluate_every_epochs epochs, and after the last)
      test (if there is test data)
    """

    Config: ClassVar[type[SupervisedConfig]] = SupervisedConfig
    config: SupervisedConfig
    model: Model
    evaluator: Any
    _given_schedule: OfStep | None = None
    _given_optimizer: Make | None = None
    rate_control: RateControl
    """Control of the learning rate other than by step."""
    # An evaluator restarts its data each time; a model's state is in its own part.
    derived: ClassVar[tuple[str, ...]] = ("datasets", "evaluators", "loaders", "_is_open")
    make_evaluator = staticmethod(build.evaluator_of)
    evaluation_job = build.SupervisedJob
    kept = loading.kept
    starting = start.starting
    saved_training = staticmethod(start.saved_training)
    changed_state = start.changed_state

    def __init__(
        self,
        config: object = None,
        training_config: Mapping[str, Any] | None = None,
        train_loader: object = None,
        val_loader: object = None,
        *,
        model: object = None,
        test_loader: object = None,
    ) -> None:
        """Accept a complete config, or a model and a short training_config."""
        root = "runs"
        if training_config is not None:
            model = config if model is None else model
            if model is None:
                raise ConfigError("Trainer(model, training_config, ...) needs a model")
            config, root = self._expanded(block_of(training_config), train_loader, model)
        super().__init__(config)
        build.refuse_config_of_another(self, config)
        self.is_own_model = False
        self.root = root
        self.loaders = {"train": train_loader, "validation": val_loader, "test": test_loader}
        if model is not None:
            self.set_model(model)
        self.note_given(train_loader=train_loader, val_loader=val_loader, test_loader=test_loader)

    def _expanded(
        self, training_config: Mapping[str, Any], train_loader: object, model: object
    ) -> tuple[SupervisedConfig, str]:
        """Expand a short config; return the complete one and the root directory of its runs."""
        return expand(training_config, train_loader, loss=getattr(model, "loss", None))

    def set_model(self, model: object) -> None:
        """Train this Model, or this torch network."""
        super().set_model(Model(model) if isinstance(model, nn.Module) else model)
        self.is_own_model = True

    def set_schedule(self, function: OfStep) -> None:
        """Multiply the optimizer's learning rate by this function of the optimisation step.

        It replaces the config's schedule. A resume needs a script that sets it again; it should depend on
        the step alone, or have state_dict and load_state_dict.
        """
        if not callable(function):
            raise ConfigError(
                f"set_schedule was given a {type(function).__name__}; give a function that takes the"
                " number of the optimisation step and returns the factor of the learning rate"
            )
        self._given_schedule = function
        self.config = self.config.replace(learning_rate_schedule={"kind": "given"})
        self.note_given(schedule=function)

    def set_optimizer(
        self, optimizer: Callable[..., TorchMade], *, lr: float | None = None, **options: object
    ) -> None:
        """Use this torch.optim.Optimizer class, or function from parameters to an optimizer.

        It is called with the parameters and the options, including `lr` if given, and replaces the
        config's optimizer; the schedule starts from `lr`. Its state is saved with the run, and a resume
        needs a script that sets it again.
        """
        if not callable(optimizer):
            raise ConfigError(
                f"set_optimizer was given a {type(optimizer).__name__}; give a class of"
                " torch.optim.Optimizer, or a function that takes parameters and returns one"
            )
        given = options if lr is None else {"lr": lr, **options}
        rate = self.config.optimizer.learning_rate if lr is None else lr
        self.config = self.config.replace(optimizer={"kind": "given", "learning_rate": rate})
        self._given_optimizer = lambda parameters: optimizer(parameters, **given)
        # A resume continues with the saved options, so other options are refused.
        self.given_classes["optimizer"] = build.described(optimizer, options)

    def set_learning_rate(self, rate: float | None) -> None:
        """Override the schedule with this learning rate from the next step on; None follows it again.

        For hooks; it is saved with the run.
        """
        if not hasattr(self, "rate_control"):
            raise LudusError(
                "set_learning_rate is for hooks of a run; before fit set 'optimizer.learning_rate'"
            )
        learner = getattr(self.update, "learner", None)
        self.rate_control.set(rate, None if learner is None else learner.gradient_step)

    @property
    def schedule(self) -> Schedule:
        """How the learning rate changes with the optimisation steps."""
        return self.fitting.schedule

    def consulted(self) -> Mapping[str, object]:
        """Return the schedule set by a script."""
        return {} if self._given_schedule is None else {"schedule": self._given_schedule}

    def prepare(self, *, max_steps: int | None) -> None:
        """Build data, model, optimizer and observers from the config and the script's objects."""
        begun = Begun(self.run.files)
        self.config, sized = sized_as_given(self.config, self.loaders["train"], begun)
        self.device = resolve_device(self.config.settings.device)
        self.datasets = datasets = self._make_datasets()
        self.dataset_name, self.train_data = datasets.dataset_name, datasets.train
        self.evaluators = datasets.evaluators
        config, notes = lengthened(self.config, max_steps, self.train_data.length(), begun)
        self.config, self.notes = as_begun(config, begun), [*sized, *notes]
        config = self.config
        self.model = self._make_model()
        if not has_begun(self.run.files):
            # A run that has begun continues with the same settings.
            config.refuse_unreached(self.train_data.length())
        self._unrepeatable = datasets.check_repeatable()
        self.num_train_steps = config.count_steps(self.train_data.length())
        self.rate_control = RateControl(config, self._given_schedule)
        self.fitting = self._make_fitting()
        self._is_open = False
        self._make_update()
        self._prepare_observers()
        build.check_evaluator(self)

    def _make_datasets(self) -> SplitDatasets:
        has_own = self.evaluator is not None
        return make_datasets(self.config, self.loaders, self.device, has_evaluator=has_own)

    def _make_model(self) -> Model:
        given = self.model if self.is_own_model else None
        return build.make_model(self.config, given, self.train_data, self.device)

    def _make_update(self) -> None:
        """Make the update of the current model, and choose its engine."""
        made = make_update(
            self.config,
            self.model,
            self.train_data,
            schedule=self.schedule,
            run_steps=self.num_train_steps,
            given=self._given_optimizer,
            **engine_options(self.run),
        )
        self.update = made.update
        if self._is_open:  # else `open` reports them: before it there is no directory to write to
            for note in self.update.engine_notes:
                self.run.tell(note, event="engine")
        self.flat, self.optimizer = self.update.flat, self.update.optimizer
        self.config = self.config.replace(engine=made.engine, memory_format=made.memory_format)

    def _make_fitting(self) -> Fit:
        config = self.config
        return Fit(
            self.train_data,
            train_step=self.train_step,
            schedule=lambda length: self.rate_control.schedule(self.config.count_steps(length)),
            max_epochs=config.max_epochs,
            max_steps=config.max_opt_steps,
            then=(Stage(name="sum_up", work=self._sum_up),),
            validate=self._validate,
            evaluate_every=config.evaluate_every_epochs,
            on_enter=self._begin_fit,
        )

    def _sum_up(self, run: Run) -> Mapping[str, float]:
        if run.counters["epoch"] == 0 == run.counters["opt_steps"]:
            run.tell(
                f"a whole epoch took no optimisation step: {type(self).__name__}.train_step calls neither"
                " self.update.step(...) nor super().train_step(...), and counts no 'opt_steps'",
                event="no_steps",
            )
        return self.update.close_epoch()

    def _begin_fit(self) -> None:
        self.update.drop_unfinished()
        self.rate_control.begin()

    def _prepare_observers(self) -> None:
        intervals = [Every(self.config.log_every_opt_steps, "opt_steps"), Every(1, "epoch")]
        self.write_log = WriteLog(self.run.log, intervals)
        self.judge = make_judge(self.config)
        every = Every(self.config.keep_every_epochs, "epoch")
        self.milestones = Milestones(every, name=self.checkpoint_name, save=self.keep_weights)

    def keep_weights(self, name: str, note: Mapping[str, Any]) -> None:
        """Pass the evaluated weights to the writer, with the finite metrics logged at this boundary."""
        log = self.run.log
        written = log.written if log.written_at == self.run.boundaries else {}
        metrics = {name: value for name, value in written.items() if math.isfinite(value)}
        self._keep(name, self.weights(), {**note, "metrics": metrics})

    def _keep(self, name: str, weights: Weights, note: Mapping[str, Any]) -> None:
        about = {"architecture": self.model.architecture, "dataset": self.dataset_name, **note}
        self.run.keep_model(name, weights, about)

    def checkpoint_name(self, run: Run) -> str:
        """Return the name of the weights saved at a milestone."""
        return f"epoch_{run.counters['epoch']}"

    def plan(self) -> Repeat:
        """Return epochs of steps, a validation after each, a test at the end."""
        last: dict[str, Any] = {"settle": self._settle} if self.async_evaluator else {}
        last |= {"test": self._test} if "test" in self.evaluators else {}
        stages = [Stage(name=name, work=work, always=True) for name, work in last.items()]
        return Repeat(name="train", times=1, body=(self.fitting.loop(), *stages))

    def parts(self) -> Mapping[str, Stateful]:
        """Return everything that is saved and restored."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "update": self.update,
            "train_data": self.train_data,
            "write_log": self.write_log,
            **({} if self.async_evaluator is None else {"evaluation": self.async_evaluator}),
            **({"judge": self.judge} if self.judge.scores else {}),
            "milestones": self.milestones,
            PART: self.rate_control,
        }

    def observers(self) -> Sequence[Observer]:
        """Return the log first, then the observers that read its metrics."""
        log, config = self.run.log, self.config
        # Looked up each time: a hook may set another model, and so another update.
        guard = WatchDivergence(GUARD, log, check=lambda: self.update.check())
        judge = JudgeLog(self.judge, log, lambda score: self.weights(), keep=self._keep)
        watch = WatchMonitors(config.monitors(), log, every_epochs=config.evaluate_every_epochs)
        judged: list[Observer] = [judge] if self.judge.scores else []
        judged += [self.rate_control.watching(log)] if self.rate_control.plateau else []
        return [self.write_log, guard, *judged, *([watch] if judged else []), self.milestones]

    def migrated(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert the state of an earlier version to the current parts."""
        state = with_judge(state)
        return state if PART in state else {**state, PART: UNSET}

    def open(self) -> None:
        """Report what fit changed, and other choices that the user should know of."""
        super().open()
        self._is_open = True
        has_mean = self.update.ema is not None
        for event, notice in build.notices(self.config, self.device, has_mean=has_mean):
            self.run.tell(notice, event=event)

    def close(self) -> None:
        """Stop the data loading processes."""
        self.train_data.close()
        if self.async_evaluator is not None:
            self.async_evaluator.close()

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons from the data, and from the parts."""
        if not self._is_prepared:
            return ()
        from_data = [*self._unrepeatable, *self.datasets.changed_later()]
        return [*from_data, *super().inexact_because()]

    def train_step(self, batch: object, batch_idx: int) -> Mapping[str, Any] | None:
        """Learn from one batch and return its metrics; override it to learn in another way."""
        counters, learning_rate = self.run.counters, self.rate_control.override
        if learning_rate is None:
            learning_rate = self.fitting.learning_rate(self.run)
        metrics = self.update.step(
            batch, batch_idx, learning_rate=learning_rate, is_last=self.train_data.has_ended()
        )
        counters["examples"] += self.update.num_in_batch
        if self.update.num_gathered == 0:
            counters["opt_steps"] += 1
            metrics["train/learning_rate"] = learning_rate
        return metrics

    def _validate(self, run: Run) -> Mapping[str, float]:
        if self.async_evaluator is None:
            metrics = self.evaluate(self.eval_data, training_mode=True)
            for note in [note for one in self.evaluators.values() for note in one.data.news()]:
                run.tell(note, event="data")
            return {**self._also_watched(metrics), **metrics}
        self._settle(run)
        if not run.is_ending:
            self.async_evaluator.launch(run.counters, self.weights())
        return {}

    def _also_watched(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return the validation metrics, if they are monitored but not given by a script's evaluator."""
        lacking = {*self.config.monitors().values()} - {*metrics}
        is_lacking = any(metric.startswith("validation/epoch_") for metric in lacking)
        if self.evaluator is None or "validation" not in self.evaluators or not is_lacking:
            return {}
        return self.evaluate(self.evaluators["validation"], training_mode=True)

    def _settle(self, run: Run) -> None:
        """Wait for the pending validation; it is logged and judged with the counters at its launch."""
        assert self.async_evaluator is not None
        if (done := self.async_evaluator.collect()) is None:
            return
        weights, metrics = done.weights, done.metrics
        run.log.write_past(run, done.counters, metrics)
        self.judge.update(
            run,
            metrics,
            lambda score: weights,
            counters=done.counters,
            keep=self._keep,
            scores=self.judge.scores_in(metrics),
        )
        self.rate_control.update(run, metrics)

    def evaluate(
        self, data: object = None, training_mode: bool = False, *, model: str | None = None
    ) -> dict[str, float]:
        """Return the metrics of the current weights, the EMA if there is one, or of a kept model.

        `data` is an evaluator, by default `eval_data`, or anything that a trainer accepts as data: a Dataset,
        a DataLoader, a function that returns one; its metrics are then named as those of validation data.
        `training_mode` means that training continues afterwards; evaluation is the same either way.
        `model` is best, last, best-<score>, the name of a model of this run, or a model's directory.
        """
        return measuring.evaluate(self, data, model)

    def _test(self, run: Run) -> Mapping[str, float]:
        """Test the best model if one was kept, else the current one."""
        best = self.best()
        if best is None:
            return self.evaluate(self.evaluators["test"])
        return self.evaluators["test"].measure(self.model, run.recall_model(best["model"]))

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of these weights on the test data, or on the validation data."""
        refuse_episodes(episodes, seed)
        return self.datasets.held_out.measure(self.model, weights)

    @property
    def eval_data(self) -> SupervisedEvaluator:
        """The evaluator that `evaluate` uses while the model trains."""
        own: SupervisedEvaluator | None = self.evaluator
        return self.datasets.validation if own is None else own

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model has the averaged weights, if there are any."""
        ema = self.update.ema
        return contextlib.nullcontext() if ema is None else swapped_weights(self.flat.vectors, ema)

    def weights(self) -> dict[str, Tensor]:
        """Return a CPU copy of the evaluated weights: the EMA if there is one."""
        with self.averaged():
            state = self.model.state_dict()
            return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state that would be evaluated."""
        self.model.load_state_dict(state["model"])
        if (ema := self.update.learner.ema) is not None:
            ema.load_means(state["update"]["ema"])
        elif self.update.ema is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        return self.weights()

    def data_facts(self) -> Mapping[str, str]:
        """Return the fingerprints of the training data and of the evaluation data."""
        facts = self.datasets.digests()
        base = base_digest(self.model.module)
        return facts if base is None else {**facts, "the frozen base": base}

    @property
    def async_evaluator(self) -> AsyncEvaluator | None:
        """The asynchronous evaluator, in a separate process, if the script has set one."""
        return self.evaluator if isinstance(self.evaluator, AsyncEvaluator) else None

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self.run.counters["epoch"]

    @property
    def train_end(self) -> bool:
        """Whether training is over."""
        most, num_steps = self.config.max_opt_steps, self.run.counters["opt_steps"]
        is_long_enough = most is not None and num_steps >= most
        return self.run.is_finished or is_long_enough or self.run.stop_reason is not None
