"""ActiveTrainer: rounds of asking for labels and of fitting, on one model or the best of several."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from ludus.active.asking import Asking
from ludus.active.candidates import Candidates
from ludus.active.config import ActiveConfig
from ludus.active.current import Current
from ludus.active.drift.measured import measured
from ludus.active.examples import PoolExamples
from ludus.active.features import Features, Of
from ludus.active.learn_set import LearnSet
from ludus.active.oracle import JOURNAL, Answers, Labels, Oracle
from ludus.active.oracles.function import Answer
from ludus.active.plan import Works, rounds
from ludus.active.pool import Pool
from ludus.active.preflight import check_scoring
from ludus.active.rounds import Progress
from ludus.active.scoring import Need, Scorer
from ludus.active.selection.scores import BY_FEATURES
from ludus.active.strategy import Strategy
from ludus.config.registry import find, register_trainer
from ludus.core import Every, Repeat, Run, Stateful
from ludus.core.errors import ConfigError
from ludus.judge.judge import leave_loop
from ludus.nn.model import Model
from ludus.session.logger import WriteLog
from ludus.supervised.base import BaseTrainer
from ludus.supervised.datasets import Datasets, make_evaluators, make_sources
from ludus.supervised.fit import EPOCH
from ludus.supervised.watchers import make_judge

_CLASSES = ("cross_entropy", "binary_cross_entropy")


@register_trainer("active")
class ActiveTrainer(BaseTrainer):
    """Asks for the labels it needs, and learns from them.

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
    # The model at hand, and what moves it, are saved through `Current`.
    derived = (*BaseTrainer.derived, "model", "update", "flat", "optimizer", "fitting")

    config: ActiveConfig

    def __init__(self, *args: Any, **more: Any) -> None:
        self.candidates = Candidates()
        super().__init__(*args, **more)
        self._function: Answer | None = None
        self._features_of: Of | None = None

    def set_model(self, model: Any) -> None:
        """Train this Model or torch network, or the best of a list of them.

        The name of a candidate, or its place, makes it the model that learns and asks, from the weights that
        it began with: before a run, or in a hook of it.
        """
        if isinstance(model, str | int):
            if self.candidates.models:
                self._activate(self.candidates.place_of(model))
            self.candidates.wanted = model
            return
        given = list(model) if isinstance(model, list | tuple) else [model]
        self.candidates.give(given)
        super().set_model(self.candidates.given[0])

    def set_oracle(self, function: Answer) -> None:
        """Let this function answer: it is given inputs and their rows, and returns a label for each."""
        if not callable(function):
            raise ConfigError(f"a {type(function).__name__} cannot answer; give a function")
        self._function = function
        self.note_given(oracle=function)

    def set_features(self, function: Of) -> None:
        """Let this function of the model and a batch of inputs give the features of examples."""
        self._features_of = function
        self.note_given(features=function)

    def prepare(self, *, max_steps: int | None) -> None:
        """Build the pool, the models, and what chooses and answers."""
        if max_steps is not None:
            raise ConfigError(
                "an active run is as long as max_rounds; fit(max_steps=...) is for other trainers"
            )
        config = self.config
        self.strategy: Strategy = find("strategy", _kind(config.strategy))(config.strategy)
        self.features = Features(config.features_layer, self._features_of)
        super().prepare(max_steps=None)
        self._check_candidates()
        run, labels = self.run, Labels(num_classes=self._num_classes())
        self.answers = Answers(lambda: run.journal(JOURNAL), labels)
        oracle = self._make_oracle()
        oracle.check(self.examples, labels, model=config.model)
        self.progress = Progress(config.stopping, self.pool.size)
        self.asking = Asking(
            config, self.examples, self.pool, strategy=self.strategy, oracle=oracle,
            answers=self.answers, progress=self.progress, scorer=lambda: self._scorer(self.model),
        )  # fmt: skip
        self._renew()

    def _check_candidates(self) -> None:
        """Raise ConfigError unless each candidate gives what is looked at, and as many outputs."""
        more: set[Need] = {"features"} if self.config.selection in BY_FEATURES else set()
        for model in self.candidates.models:
            check_scoring(
                self.strategy, model, self._scorer(model), features=self.features,
                class_weights=self.config.class_weights, more=more,
            )  # fmt: skip
        self.candidates.check_alike(self.examples.inputs(torch.tensor([0])))

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
        dtype = torch.int64 if config.loss in _CLASSES else torch.float32
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
        return Datasets(name, train, make_evaluators(config, sources, self.device))

    def _make_model(self) -> Model:
        self.candidates.build(
            self.config, self.train_data, self.device, members=self.strategy.members
        )
        return self.candidates.models[self.candidates.chosen]

    def _make_oracle(self) -> Oracle:
        section, kind = self.config.oracle, _kind(self.config.oracle)
        if self._function is not None and kind != "function":
            raise ConfigError(
                f"set_oracle gave a function, but 'oracle.kind' is {kind}; set it to function"
            )
        given = [self._function] if kind == "function" else []
        oracle: Oracle = find("oracle", kind)(section, *given)
        return oracle

    def _num_classes(self) -> int | None:
        """Return how many classes the model tells apart; None where it predicts numbers."""
        if self.config.loss != "cross_entropy":
            return 2 if self.config.loss == "binary_cross_entropy" else None
        with torch.no_grad(), self.model.evaluating():
            return int(self.model(self.examples.inputs(torch.tensor([0]))).shape[1])

    def _renew(self) -> None:
        """Say what each round begins anew with."""
        own = (self.model, self.optimizer, self.update) if self.config.start == "cold" else ()
        self.fitting.renew_only(self.judge, *own)

    def _prepare_observers(self) -> None:
        super()._prepare_observers()
        intervals = [
            Every(self.config.log_every_opt_steps, "opt_steps"), Every(1, "epoch"), Every(1, "round")
        ]  # fmt: skip
        self.write_log = WriteLog(self.run.log, intervals)
        # Early stopping ends the epochs of a round, and the round goes on.
        self.judge = make_judge(self.config, leave_loop(EPOCH))

    def plan(self) -> Repeat:
        """Return rounds of asking, labelling, fitting and testing."""
        works = Works(
            query=self.asking.query, label=self.asking.label, select_model=self._select,
            take_best=self._take_best, test=self._test,
        )  # fmt: skip
        return rounds(self.config, self.fitting.loop(), works, is_over=self.asking.is_over)

    def parts(self) -> Mapping[str, Stateful]:
        """Return the pool first: what is learnt from depends on it."""
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
        """Put the candidate that was chosen in its place, then give every part its saved state."""
        self._activate(self.candidates.saved_choice(state))
        super().load_state_dict(state)

    def _activate(self, chosen: int) -> None:
        """Let this candidate be the model that learns and asks."""
        if chosen == self.candidates.chosen:
            return
        self.model = self.candidates.take(chosen)
        self._make_update()
        self._renew()

    def select_active_model(self) -> str:
        """Rank the candidates on the labels there are, take the best one, and return its name."""
        chosen = self.candidates.rank(
            self.config.selection,
            self._scorer,
            self.pool.labelled,
            self.pool.labels,
            self.config.loss,
        )
        self._activate(chosen)
        return self.candidates.names[chosen]

    def _select(self, run: Run) -> Mapping[str, float] | None:
        if self.config.selection is None:
            return None
        name = self.select_active_model()
        table = self.candidates.table(self.config.selection)
        run.log.text("ranking of the candidates", table)
        run.tell(
            f"the model is {name}, by {self.config.selection}\n{table}", event="model_selected"
        )
        return self.candidates.metrics(self.config.selection)

    def _scorer(self, model: Model) -> Scorer:
        ema = self.update.ema
        is_swapped = model is self.model and ema is not None
        return Scorer(
            self.examples,
            model,
            features=self.features,
            batch_size=self.config.scoring_batch_size,
            precision=self.config.precision,
            seed=self.config.seed,
            swapped=lambda: self.flat.swapped(ema) if is_swapped else contextlib.nullcontext(),  # type: ignore[arg-type]
        )

    def _take_best(self, run: Run) -> None:
        if (best := self.best()) is None:
            return
        self.model.load_state_dict(run.recall_model(best["model"]))
        if (ema := self.update.ema) is not None:
            for mean, vector in zip(ema, self.flat.vectors, strict=True):
                mean.copy_(vector)

    def _test(self, run: Run) -> Mapping[str, float]:
        """Measure the model of this round; on test data, which has decided nothing."""
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
            accuracy = self.evaluate(self.eval_data).get("validation/epoch_accuracy")
        if self.progress.looks_at_pool:
            rows = torch.arange(self.pool.size)
            seen = self._scorer(self.model).stream(rows, {"probabilities"})
            said_N = torch.cat(
                [one.log_probs.argmax(1).cpu() for one in seen if one.log_probs is not None]
            )
        if (share := self.progress.hear(accuracy, said_N)) is not None:
            metrics = {**metrics, "pool/stable_share": share}
        return metrics


def _kind(section: object) -> str:
    return str(getattr(section, "kind"))  # noqa: B009
