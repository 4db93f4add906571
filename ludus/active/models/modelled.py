"""The models of an active trainer: one or several candidates, and the selected one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ludus.active.adapters.sklearn import Classifier, Refit, refusals
from ludus.active.config import ActiveConfig
from ludus.active.examples import PoolExamples
from ludus.active.models.candidates import Candidates
from ludus.active.models.features import Features
from ludus.active.pool import Pool
from ludus.active.preflight import check_batch_of_one, check_scoring
from ludus.active.scoring import Need, Scorer
from ludus.active.selection.scores import BY_FEATURES
from ludus.active.short_config import expand_active, load_starting
from ludus.active.strategy import Strategy
from ludus.core import Run, states
from ludus.core.errors import ConfigError
from ludus.core.services import Weights
from ludus.nn.engines.unsaved import PlainState
from ludus.nn.model import Model
from ludus.nn.swapped_weights import swapped_weights
from ludus.seeds import forked
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.fit import EPOCH
from ludus.supervised.preflight import check_model
from ludus.supervised.short_config import block_of
from ludus.supervised.trainer import BaseTrainer


class Modelled(BaseTrainer):
    """Builds the candidates, ranks them, and trains the selected one."""

    config: ActiveConfig
    strategy: Strategy
    features: Features
    examples: PoolExamples
    pool: Pool

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
            config,
            training_config,
            train_loader,
            val_loader,
            model=model,
            test_loader=test_loader,
        )
        if training_config is not None:
            load_starting(block_of(training_config), self.candidates.given)

    def _expanded(
        self, training_config: Mapping[str, Any], train_loader: object, model: object
    ) -> tuple[SupervisedConfig, str]:
        first = model[0] if isinstance(model, list | tuple) and model else model
        return expand_active(training_config, train_loader, loss=getattr(first, "loss", None))

    def set_model(self, model: Any) -> None:
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

    def _make_model(self) -> Model:
        self.candidates.build(
            self.config, self.train_data, self.device, members=self.strategy.members
        )
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
        self._plain_state = PlainState()

    def _renew(self) -> None:
        """Declare the parts that are reset in each round."""
        own = (self.model, self.optimizer, self.update) if self.config.start != "warm" else ()
        self.fitting.renew_only(self.judge, *own)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Select the saved candidate, then restore every part."""
        with states.fitting("candidates"):
            has_others = self.candidates.begin_as(state)
        if has_others:
            # The script built a network with other initial weights than the run's.
            self._make_update()
            self.fitting.renew_only()
            self._renew()
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
        self._renew()

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
        swapped: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        if model is self.model and ema is not None and not is_first:
            swapped = functools.partial(swapped_weights, self.flat.vectors, ema)
        return Scorer(
            self.examples,
            model,
            features=self.features,
            batch_size=self.config.scoring_batch_size,
            precision=self.config.precision,
            seed=self.config.seed,
            is_interrupted=lambda: self.run.interrupted,
            swapped=swapped,
        )
