"""Measure a model on any data: with the weights of training, or with kept ones."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.core.errors import LudusError
from ludus.judge.evaluator import as_outcome
from ludus.nn.swapped_weights import restored, swapped_weights
from ludus.session.kept import model_in, newest, weights_in
from ludus.store.storage import Storage
from ludus.supervised.datasets import make_evaluators
from ludus.supervised.loading import RebuiltModel

if TYPE_CHECKING:
    from ludus.supervised.trainer import BaseTrainer

SCORE = "validation/score"
"""The metric under which an evaluator's score is logged."""


def evaluate(trainer: BaseTrainer, data: object, model: str | None) -> dict[str, float]:
    """Return the metrics of a trainer's current weights, or of a kept model, on these data."""
    if not hasattr(trainer, "update"):
        raise LudusError("there is nothing to evaluate yet: fit makes the model; call it first")
    evaluator: Any = trainer.eval_data if data is None else data
    if not callable(getattr(evaluator, "evaluate", None)):
        made = make_evaluators(trainer.config, {"validation": data}, trainer.device)
        evaluator = made["validation"]
    weights = trainer.averaged() if model is None else _kept(trainer, model)
    with weights:
        return as_outcome(evaluator.evaluate(trainer.model), metric=SCORE)[1]


def _kept(trainer: BaseTrainer, model: str) -> contextlib.AbstractContextManager[None]:
    """Return a context in which the trainer's model has the weights of a kept model."""
    files = trainer.run.files
    if not isinstance(files, Storage):
        if Path(model, "model.json").is_file():
            return swapped_weights(trainer.model, model_in(Path(model))[0])
        raise LudusError(
            f"this trainer has no run directory to take the model '{model}' from; call fit first, or give the"
            " directory of a model"
        )
    place = files.place

    def whole(state: Mapping[str, Any]) -> Mapping[str, Any]:
        with restored(trainer.model, trainer.optimizer, what=["state"]):
            return trainer.weights_of(state)

    rebuilt = RebuiltModel(trainer.config, trainer.model, whole)
    _, (weights, _) = weights_in(
        files,
        newest(place, files, trainer.config),
        model,
        weights_of=rebuilt.weights_of,
        tell=trainer.run.tell,
        is_last_best=False,
    )
    return swapped_weights(trainer.model, weights)
