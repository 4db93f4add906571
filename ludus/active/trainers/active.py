"""ActiveTrainer: rounds of querying labels and fitting, on one model or the best of several."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from ludus.active.asking import Asking
from ludus.active.config import ActiveConfig
from ludus.active.drift.measured import measured
from ludus.active.examples import PoolExamples
from ludus.active.learn_set import LearnSet
from ludus.active.models.current import Current
from ludus.active.models.features import Features, Of
from ludus.active.models.modelled import Modelled
from ludus.active.oracle import JOURNAL, Answers, Labels, Oracle
from ludus.active.oracles.function import Answer
from ludus.active.plan import rounds
from ludus.active.pool import Pool
from ludus.active.preflight import refuse_unread_layer
from ludus.active.rounds import Progress
from ludus.active.strategy import Strategy
from ludus.config.registry import find, register_trainer
from ludus.config.sections import kind_of
from ludus.core import Every, Repeat, Run, Stateful
from ludus.core.errors import ConfigError
from ludus.fit.loop import EPOCH
from ludus.fit.watchers import make_judge
from ludus.judge.judge import leave_loop
from ludus.nn.model import CLASS_LOSSES
from ludus.session.logger import WriteLog
from ludus.supervised.build import named_in_full
from ludus.supervised.datasets import Datasets, make_evaluators, make_sources


@register_trainer("active")
class ActiveTrainer(Modelled):
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
          validate (with_validation)
        take_best
        test
    """

    Config = ActiveConfig
    # The current model and its optimizer are saved through `Current`.
    derived = (*Modelled.derived, "model", "update", "flat", "optimizer", "fitting")

    asked_once = ("oracle",)

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
        super().__init__(
            config,
            training_config,
            train_loader,
            val_loader,
            model=model,
            test_loader=test_loader,
        )
        self._function: Answer | None = None
        self._features_of: Of | None = None

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
            config, self.examples, self.pool, strategy=self.strategy, oracle=oracle,
            answers=self.answers, progress=self.progress, scorer=lambda: self._scorer(self.model),
        )  # fmt: skip
        self._renew()

    def _make_datasets(self) -> Datasets:
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
        return Datasets(name, train, make_evaluators(config, sources, self.device))

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

    def consulted(self) -> Mapping[str, object]:
        """Return the strategy, the oracle, and the features function."""
        oracle = getattr(self, "oracle", None) if self._function is None else self._function
        strategy = getattr(self, "strategy", None)
        own = {"oracle": oracle, "strategy": strategy, "features": self._features_of}
        return {**super().consulted(), **own}

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
            ema, data = self.update.ema, self.evaluators
            with contextlib.nullcontext() if ema is None else self.flat.swapped(ema):
                metrics |= measured(
                    calibration,
                    self.model,
                    test=data["test"],
                    validation=data.get("validation"),
                    run=run,
                )
        accuracy, said_N = None, None
        if (stopping := self.config.stopping) is not None and stopping.target_accuracy is not None:
            accuracy = self.evaluate(self.evaluators["validation"])["validation/epoch_accuracy"]
        if self.progress.looks_at_pool:
            said_N = self._scorer(self.model).predicted(torch.arange(self.pool.size))
        if (share := self.progress.update(accuracy, said_N)) is not None:
            metrics = {**metrics, "pool/stable_share": share}
        return metrics
