"""ActiveTrainer: rounds of querying labels and fitting, on one model or the best of several."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ludus.active import loading, start
from ludus.active.adapters.sklearn import Classifier, Refit, refusals
from ludus.active.asking import Asking, Progress
from ludus.active.config import ActiveConfig
from ludus.active.examples import PoolExamples
from ludus.active.learn_set import LearnSet
from ludus.active.models.candidates import Candidates
from ludus.active.models.features import Features, Of
from ludus.active.oracle import JOURNAL, Answers, Labels, Oracle
from ludus.active.oracles.automatic import Answer
from ludus.active.plan import rounds
from ludus.active.pool import Pool
from ludus.active.preflight import check_batch_of_one, check_scoring, refuse_unread_layer
from ludus.active.recording import measure_calibration
from ludus.active.scoring import Need, Scorer
from ludus.active.selection.scores import BY_FEATURES
from ludus.active.short_config import expand_active, load_starting
from ludus.active.strategy import Strategy
from ludus.config.registry import find, register_trainer
from ludus.config.sections import kind_of
from ludus.core import Every, Repeat, Run, Stateful, states
from ludus.core.errors import ConfigError
from ludus.core.services import Weights
from ludus.fit.loop import EPOCH
from ludus.fit.preflight import check_model
from ludus.fit.watchers import make_judge
from ludus.judge.judge import leave_loop
from ludus.nn.model import CLASS_LOSSES, Model
from ludus.seeds import forked
from ludus.session.logger import WriteLog
from ludus.supervised.build import make_model, named_in_full
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import SplitDatasets, make_evaluators, make_sources
from ludus.supervised.short_config import block_of
from ludus.supervised.trainer import BaseTrainer


@register_trainer("active")
class ActiveTrainer(BaseTrainer):
    """Active learning: queries labels for the most informative examples, and learns from them.

    train
      round x max_rounds
        query
        label
        select_model (once)
        epoch x max_epochs
          step x batches
            train_step
          sum_up
          validate (every evaluate_every_epochs epochs, and after the last)
        take_best
        test
    """

    Config = ActiveConfig
    config: ActiveConfig
    # The current model and its optimizer are saved through `Current`.
    derived = (*BaseTrainer.derived, "model", "update", "flat", "optimizer", "fitting")

    asked_once = ("oracle",)
    kept = loading.kept
    starting = start.starting

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
        """Accept a complete config, or one model or several and a short training_config."""
        self.candidates = Candidates()
        super().__init__(
            config, training_config, train_loader, val_loader, model=model, test_loader=test_loader
        )
        self._function: Answer | None = None
        self._features_of: Of | None = None
        if training_config is not None:
            load_starting(block_of(training_config), self.candidates.given)

    def _expanded(
        self, training_config: Mapping[str, Any], train_loader: object, model: object
    ) -> tuple[SupervisedConfig, str]:
        first = model[0] if isinstance(model, list | tuple) and model else model
        return expand_active(training_config, train_loader, loss=getattr(first, "loss", None))

    def set_model(self, model: object) -> None:
        """Train this Model or torch network, or the best of a list of them.

        The name or index of a candidate selects it, with its initial weights: before a run, which then
        skips `selection`, or in a hook.
        """
        if isinstance(model, str | int):
            if self.candidates.models:
                self._activate(self.candidates.place_of(model))
            if not self.run.cursor:
                self.candidates.wanted = model
            return
        given = list(model) if isinstance(model, list | tuple) else [model]
        self.candidates.give(given)
        super().set_model(self.candidates.given[0])

    def set_oracle(self, function: Answer) -> None:
        """Use this function as the oracle: it takes inputs and their rows, and returns their labels."""
        if not callable(function):
            raise ConfigError(f"a {type(function).__name__} cannot answer; give a function")
        self._function = function
        self.note_given(oracle=function)

    def set_features(self, function: Of) -> None:
        """Use this function of the model and a batch of inputs for the features of examples."""
        if not callable(function):
            raise ConfigError(f"a {type(function).__name__} gives no features; give a function")
        self._features_of = function
        self.note_given(features=function)

    def prepare(self, *, max_steps: int | None) -> None:
        """Build the pool, the models, the strategy and the oracle."""
        if max_steps is not None:
            raise ConfigError(
                "an active run is as long as max_rounds; fit(max_steps=...) is for other trainers"
            )
        config = self.config
        self.strategy: Strategy = find("strategy", kind_of(config.strategy))(config.strategy)
        has_function = self._features_of is not None
        refuse_unread_layer(config, self.strategy, has_function=has_function)
        self.features = Features(config.features_layer, self._features_of)
        super().prepare(max_steps=None)
        self._check_candidates()
        run, labels = self.run, Labels(num_classes=self._num_classes())
        self.answers = Answers(lambda: run.journal(JOURNAL), labels)
        self.oracle = oracle = self._make_oracle()
        oracle.check(self.examples, labels, model=config.model)
        self._check_measured()
        self.progress = Progress(config.stopping, self.pool.size)
        self.asking = Asking(
            config=config, examples=self.examples, pool=self.pool, strategy=self.strategy,
            oracle=oracle, answers=self.answers, progress=self.progress,
            scorer=lambda: self._scorer(self.model),
        )  # fmt: skip
        self.renew()

    def _make_datasets(self) -> SplitDatasets:
        config, has_evaluator = self.config, self.evaluator is not None
        sources, name = make_sources(config, self.loaders, has_evaluator=has_evaluator)
        self.examples = PoolExamples(
            sources["train"], device=self.device, workers=config.settings.workers, seed=config.seed
        )
        first = config.initial_labels or config.queries
        if max(first, config.queries) > self.examples.size:
            key = "initial_labels" if first > self.examples.size else "queries"
            raise ConfigError(
                f"'{key}' is {max(first, config.queries)}, and the pool has {self.examples.size} examples;"
                f" use at most {self.examples.size}"
            )
        dtype = torch.int64 if config.loss in CLASS_LOSSES else torch.float32
        self.pool = Pool(self.examples.size, dtype=dtype)
        train = LearnSet(
            self.examples, self.pool, batch_size=config.batch_size, drop_last=config.drop_last,
            seed=config.seed, first=first,
        )  # fmt: skip
        if config.calibration is not None and sources["test"] is None:
            raise ConfigError(
                "'calibration' is measured on test data, and there is none; set data.test_fraction, give a"
                " test_loader, or set it to null"
            )
        stopping = config.stopping
        if stopping is not None and stopping.target_accuracy and sources["validation"] is None:
            raise ConfigError(
                "'stopping.target_accuracy' is measured on validation data, and there is none; set"
                " data.validation_fraction, give a val_loader, or set it to null"
            )
        return SplitDatasets(name, train, make_evaluators(config, sources, self.device))

    def _make_model(self) -> Model:
        config, data, device = self.config, self.train_data, self.device
        make = functools.partial(make_model, config, data=data, device=device)
        self.candidates.build(config, make, device, members=self.strategy.members)
        return self.candidates.models[self.candidates.chosen]

    def _check_candidates(self) -> None:
        """Raise ConfigError unless each candidate fulfils the strategy's needs and has as many outputs."""
        more: set[Need] = {"features"} if self.config.selection in BY_FEATURES else set()
        one = self.examples.inputs(torch.tensor([0]))
        label = self.pool.labels.new_zeros(1).to(self.device)
        for model in self.candidates.models:
            check_batch_of_one(self.config, model, (one, label))
            check_scoring(
                self.strategy, model, self._scorer(model), features=self.features,
                class_weights=self.config.class_weights, more=more,
            )  # fmt: skip
        self.candidates.check_alike(one)
        if self.async_evaluator is not None and self.strategy.members > 1:
            raise ConfigError(
                "an AsyncEvaluator rebuilds one network in another process, and a committee is several; set a"
                " ludus.Evaluator, or use a strategy without a committee"
            )

    def _check_measured(self) -> None:
        """Raise ConfigError if a candidate cannot be evaluated on the validation or test data."""
        for model in self.candidates.models:
            if not isinstance(model, Classifier):
                for name, evaluator in self.evaluators.items():
                    with forked(0):
                        check_model(model, evaluator.data, what=f"be measured on the {name} data")

    def _make_oracle(self) -> Oracle:
        section, kind = self.config.oracle, kind_of(self.config.oracle)
        if self._function is not None and kind != "function":
            raise ConfigError(
                f"set_oracle gave a function, but 'oracle.kind' is {kind}; set it to function"
            )
        given = [self._function] if kind == "function" else []
        oracle: Oracle = find("oracle", kind)(section, *given)
        return oracle

    def _num_classes(self) -> int | None:
        """Return the number of classes of the model; None for regression."""
        if self.config.loss != "cross_entropy":
            return 2 if self.config.loss == "binary_cross_entropy" else None
        with torch.no_grad(), self.model.evaluating():
            return int(self.model(self.examples.inputs(torch.tensor([0]))).shape[1])

    def _make_update(self) -> None:
        """Make the update of the current model, or its refit if it has no weights."""
        if not isinstance(self.model, Classifier):
            super()._make_update()
            return
        if wrong := list(refusals(self.config)):
            raise ConfigError(
                f"a scikit-learn classifier is fitted once a round, in one go: {'; '.join(wrong)}"
            )
        refit = Refit(self.model, self.examples, self.pool, self.config.seed)
        self.update, self.optimizer = refit, refit.optimizer  # type: ignore[assignment]
        self.config = self.config.replace(engine="eager")

    def renew(self) -> None:
        """Declare the parts that are reset in each round."""
        own = (self.model, self.optimizer, self.update) if self.config.round_start != "warm" else ()
        self.fitting.renew_only(self.judge, *own)

    def _prepare_observers(self) -> None:
        super()._prepare_observers()
        intervals = [
            Every(self.config.log_every_opt_steps, "opt_steps"), Every(1, "epoch"), Every(1, "round")
        ]  # fmt: skip
        self.write_log = WriteLog(self.run.log, intervals)
        # Early stopping ends the epochs of a round, and the round continues.
        self.judge = make_judge(self.config, leave_loop(EPOCH))

    def checkpoint_name(self, run: Run) -> str:
        return named_in_full(self, super().checkpoint_name(run))

    def plan(self) -> Repeat:
        """Return rounds of querying, labelling, fitting and testing."""
        return rounds(
            self.config, self.fitting.loop(), query=self.asking.query, label=self.asking.label,
            select_model=self._select, take_best=self._take_best, test=self._test,
            settle=self._settle if self.async_evaluator else None, is_over=self.asking.is_over,
        )  # fmt: skip

    def parts(self) -> Mapping[str, Stateful]:
        """Return the pool first: the training batches depend on it."""
        return {
            "pool": self.pool,
            "candidates": self.candidates,
            "progress": self.progress,
            **super().parts(),
            "model": Current(lambda: self.model),
            "optimizer": Current(lambda: self.optimizer),
            "update": Current(lambda: self.update),
            "fitting": self.fitting,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Select the saved candidate, then restore every part."""
        with states.fitting("candidates"):
            has_others = self.candidates.begin_as(state)
        if has_others:
            # The script built a network with other initial weights than the run's.
            self._make_update()
            self.fitting.renew_only()
            self.renew()
        self._activate(self.candidates.saved_choice(state))
        super().load_state_dict(state)

    def _activate(self, chosen: int) -> None:
        """Make this candidate the current model."""
        if chosen == self.candidates.chosen:
            return
        self.model = self.candidates.take(chosen)
        if any(frame.name == EPOCH for frame in self.run.cursor):
            # The best weights of this fit and the patience count belong to the other model.
            self.judge.reset()
        self._make_update()
        self.renew()

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state that would be evaluated; its candidate is selected."""
        self._activate(self.candidates.saved_choice(state))
        return super().weights_of(state)

    def recall(self, about: Mapping[str, Any]) -> None:
        """Select the candidate named in the note of saved weights, or the only one."""
        name = about.get("candidate")
        if isinstance(name, str) and len(self.candidates.models) > 1:
            self._activate(self.candidates.place_of(name))

    def _keep(self, name: str, weights: Weights, note: Mapping[str, Any]) -> None:
        candidates = self.candidates
        own = (
            {"candidate": candidates.names[candidates.chosen]} if len(candidates.names) > 1 else {}
        )
        super()._keep(name, weights, {**own, **note})

    def consulted(self) -> Mapping[str, object]:
        """Return the strategy, the oracle, and the features function."""
        oracle = getattr(self, "oracle", None) if self._function is None else self._function
        strategy = getattr(self, "strategy", None)
        own = {"oracle": oracle, "strategy": strategy, "features": self._features_of}
        return {**super().consulted(), **own}

    def select_active_model(self) -> str:
        """Rank the candidates on the labels so far, select the best, and return its name."""
        chosen = self.candidates.rank(
            self.config.selection,
            lambda model: self._scorer(model, is_first=True),
            self.pool.labelled,
            self.pool.labels,
            self.config.loss,
        )
        self._activate(chosen)
        return self.candidates.names[chosen]

    def _select(self, run: Run) -> Mapping[str, float]:
        metrics = self._first_metrics()
        if self.config.selection is None:
            return metrics
        if self.candidates.wanted is not None:
            name = self.candidates.names[self.candidates.chosen]
            run.tell(
                f"the model is {name}, which the script has set; selection {self.config.selection} is not"
                " asked",
                event="model_selected",
            )
            return metrics
        name = self.select_active_model()
        table = self.candidates.table(self.config.selection)
        if run.files is not None:
            self.candidates.record(run.files, self.config.selection)
        run.tell(
            f"the model is {name}, by {self.config.selection}\n{table}", event="model_selected"
        )
        return {**metrics, **self.candidates.metrics(self.config.selection)}

    def _first_metrics(self) -> dict[str, float]:
        """Return the test metrics of every candidate before training."""
        found: dict[str, float] = {}
        for name, model in zip(self.candidates.names, self.candidates.models, strict=True):
            if "test" not in self.evaluators or isinstance(model, Classifier):
                continue
            for metric, value in self.evaluators["test"].evaluate(model)[1].items():
                found[f"initial/{metric.removeprefix('test/')}/{name}"] = value
        return found

    def _scorer(self, model: Model, *, is_first: bool = False) -> Scorer:
        """Return the Scorer of a model: with its EMA weights, or with its initial ones."""
        ema = self.update.ema
        is_swapped = model is self.model and ema is not None and not is_first
        return Scorer(
            self.examples,
            model,
            features=self.features,
            batch_size=self.config.scoring_batch_size,
            precision=self.config.precision,
            seed=self.config.seed,
            is_interrupted=lambda: self.run.interrupted,
            swapped=self.averaged if is_swapped else contextlib.nullcontext,
        )

    def _take_best(self, run: Run) -> None:
        if (best := self.best()) is None:
            return
        self.model.load_state_dict(run.recall_model(best["model"]))
        if self.update.ema is not None:
            self.update.begin_mean()

    def _test(self, run: Run) -> Mapping[str, float]:
        """Test this round's model on the test data, which no decision has used."""
        metrics = self.evaluate(self.evaluators["test"]) if "test" in self.evaluators else {}
        if (calibration := self.config.calibration) is not None:
            data = self.evaluators
            with self.averaged():
                metrics |= measure_calibration(
                    calibration, self.model, test=data["test"], validation=data.get("validation"),
                    run=run,
                )  # fmt: skip
        accuracy, said_N = None, None
        if (stopping := self.config.stopping) is not None and stopping.target_accuracy is not None:
            accuracy = self.evaluate(self.evaluators["validation"])["validation/epoch_accuracy"]
        if self.progress.looks_at_pool:
            said_N = self._scorer(self.model).predicted(torch.arange(self.pool.size))
        if (share := self.progress.update(accuracy, said_N)) is not None:
            metrics = {**metrics, "pool/stable_share": share}
        return metrics


class Current:
    """A part that saves and loads what a function currently returns: a model may be replaced during a run."""

    def __init__(self, get: Callable[[], Stateful]) -> None:
        self._get = get

    def state_dict(self) -> Mapping[str, Any]:
        return self._get().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._get().load_state_dict(state)

    def inexact_because(self) -> Sequence[str]:
        ask = getattr(self._get(), "inexact_because", None)
        return ask() if callable(ask) else ()

    @property
    def engine_notes(self) -> Sequence[str]:
        return getattr(self._get(), "engine_notes", ())
