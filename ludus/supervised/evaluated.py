"""Validation of a supervised trainer, synchronous or asynchronous, and the test of its best model."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError
from ludus.core.services import Weights
from ludus.data.batches.memory import Batches
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.judge.evaluator import as_outcome, check_made_for, refuse_other_keys
from ludus.judge.judge import Judge
from ludus.nn.base_weights import base_digest
from ludus.nn.flat import FlatParameters
from ludus.nn.model import FROM_MODEL, Model
from ludus.nn.optimizer import Optimizer
from ludus.nn.precision import autocast_in
from ludus.nn.swapped_weights import swapped_weights
from ludus.supervised.datasets import make_evaluators
from ludus.supervised.evaluation_job import SupervisedJob, evaluator_of
from ludus.supervised.evaluator import SupervisedEvaluator
from ludus.supervised.preflight import check_model
from ludus.supervised.rate_control import RateControl
from ludus.supervised.update import Update

_SCORE = "validation/score"
"""The metric name under which an evaluator's score is logged."""


class Evaluated:
    """The evaluation methods of a supervised trainer."""

    config: Any
    run: Run
    evaluator: Any
    model: Any
    flat: FlatParameters
    update: Update
    train_data: Batches
    evaluators: Mapping[str, SupervisedEvaluator]
    optimizer: Optimizer
    judge: Judge
    rate_control: RateControl
    callbacks: dict[str, object]
    _keep: Callable[[str, Weights, Mapping[str, Any]], None]
    device: torch.device
    _is_own_model: bool

    make_evaluator = staticmethod(evaluator_of)
    evaluation_job = SupervisedJob

    def weights(self) -> dict[str, Tensor]:
        """Return a CPU copy of the evaluated weights: the EMA if there is one."""
        ema = self.update.ema
        with contextlib.nullcontext() if ema is None else swapped_weights(self.flat.vectors, ema):
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
        data: dict[str, Batches] = {"training": self.train_data}
        data |= {role: one.data for role, one in self.evaluators.items()}
        facts = {role: found for role, one in data.items() if (found := one.digest()) is not None}
        base = base_digest(self.model.module)
        return facts if base is None else {**facts, "the frozen base": base}

    def _changed_later(self) -> list[str]:
        """Return a reason for each evaluation data set that changed during the run."""
        return [why for one in self.evaluators.values() for why in one.data.changed_later()]

    @property
    def async_evaluator(self) -> AsyncEvaluator | None:
        """The asynchronous evaluator, in a separate process, if the script has set one."""
        return self.evaluator if isinstance(self.evaluator, AsyncEvaluator) else None

    def best(self) -> Mapping[str, Any] | None:
        """Return metric, score and location of the best model so far."""
        return self.judge.best if hasattr(self, "judge") else None

    def runners_up(self) -> Sequence[Mapping[str, Any]]:
        """Return the same for each model kept besides the best one, in order of score."""
        return self.judge.runners_up if hasattr(self, "judge") else ()

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the record of best models whose weights are lost, or in another run's directory."""
        self.judge.forget_models(names)

    def _prepare_evaluator(self) -> None:
        """Raise, before any work is done, if the evaluator does not fit the config."""
        if self.evaluator is not None and not self.config.with_validation:
            raise ConfigError(
                "an evaluator was set, but 'with_validation' is false, so it would never be asked; turn it on"
            )
        if not self._may_log_more():
            self.config.refuse_unlogged()
        check_made_for(type(self), self.config, self.evaluator)
        scorer = getattr(self.evaluator, "scorer", None)
        if isinstance(scorer, SupervisedEvaluator):
            with autocast_in(self.config.precision, self.device):
                check_model(
                    self.model, scorer.data, what="be measured on the data of the evaluator"
                )
        if (async_evaluator := self.async_evaluator) is None:
            return
        rebuilt = {"kind", "model", "loss"}
        refuse_other_keys(self.config, async_evaluator, free={*self.config.model_dump()} - rebuilt)
        if self._is_own_model:
            raise ConfigError(
                "an AsyncEvaluator rebuilds the model from the config in another process, but this one"
                " was set by the script; register it as a model kind, or set a ludus.Evaluator"
            )
        async_evaluator.is_interrupted = lambda: self.run.interrupted
        async_evaluator.on_event = self._note_failure
        async_evaluator.check()

    def _may_log_more(self) -> bool:
        """Return whether a script's own model, evaluator, trainer or callback may log other metrics."""
        steps = ("training_step", "evaluation_step")
        is_own = any(getattr(type(self.model), s, None) is not getattr(Model, s) for s in steps)
        is_own = is_own or self.model.loss == FROM_MODEL
        is_given = self.evaluator is not None or bool(self.callbacks)
        return is_own or is_given or not type(self).__module__.startswith("ludus.")

    def _note_failure(self, text: str) -> None:
        """Report that an evaluation process failed, and write it to the event journal."""
        self.run.tell(text, event="evaluation_failed")

    def _validate(self, run: Run) -> Mapping[str, float]:
        if self.async_evaluator is None:
            metrics = self.evaluate(self.eval_data, training_mode=True)
            for told in [told for one in self.evaluators.values() for told in one.data.news()]:
                run.tell(told, event="data")
            return {**self._also_watched(metrics), **metrics}
        self._settle(run)
        if not run.is_ending:
            self.async_evaluator.launch(run.counters, self.weights())
        return {}

    def _also_watched(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return the validation metrics, if they are monitored but not given by a script's evaluator."""
        lacking = {*self.config.monitors().values()} - {*metrics}
        if self.evaluator is None or "validation" not in self.evaluators:
            return {}
        if not any(metric.startswith("validation/epoch_") for metric in lacking):
            return {}
        return self.evaluate(self.evaluators["validation"], training_mode=True)

    def _just_logged(self) -> dict[str, float]:
        """Return the finite metrics logged at this boundary."""
        log = self.run.log
        written = log.written if log.written_at == self.run.boundaries else {}
        return {name: value for name, value in written.items() if math.isfinite(value)}

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

    def evaluate(self, data: object = None, training_mode: bool = False) -> dict[str, float]:
        """Return the metrics of the current weights, the EMA if there is one.

        `data` is an evaluator, by default `eval_data`, or anything that a trainer accepts as data: a Dataset,
        a DataLoader, a function that returns one; its metrics are then named as those of validation data.
        `training_mode` means that training continues afterwards; evaluation is the same either way.
        """
        if not hasattr(self, "update"):
            raise LudusError("there is nothing to evaluate yet: fit makes the model; call it first")
        evaluator: Any = self.eval_data if data is None else data
        if not callable(getattr(evaluator, "evaluate", None)):
            sources = {"validation": data, "test": None}
            evaluator = make_evaluators(self.config, sources, self.device)["validation"]
        if self.update.ema is None:
            return as_outcome(evaluator.evaluate(self.model), metric=_SCORE)[1]
        with swapped_weights(self.flat.vectors, self.update.ema):
            return as_outcome(evaluator.evaluate(self.model), metric=_SCORE)[1]

    def _test(self, run: Run) -> Mapping[str, float]:
        """Test the best model if one was kept, else the current one."""
        best = self.best()
        if best is None:
            return self.evaluate(self.evaluators["test"])
        with swapped_weights(self.model, run.recall_model(best["model"])):
            return self.evaluators["test"].evaluate(self.model)[1]

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of these weights on the test data, or on the validation data."""
        if episodes is not None or seed is not None:
            raise ConfigError(
                "this run was trained on data, not in episodes: --episodes and --seed do not apply"
            )
        role = "test" if "test" in self.evaluators else "validation"
        if role not in self.evaluators:
            raise ConfigError("this run has neither test nor validation data to evaluate on")
        with swapped_weights(self.model, weights):
            return self.evaluators[role].evaluate(self.model)[1]

    @property
    def eval_data(self) -> SupervisedEvaluator:
        """The evaluator that `evaluate` uses after every epoch."""
        if self.evaluator is not None:
            return self.evaluator  # type: ignore[no-any-return]
        if "validation" not in self.evaluators:
            raise LudusError(
                "this run has no validation data; give evaluate the data to measure on"
            )
        return self.evaluators["validation"]
