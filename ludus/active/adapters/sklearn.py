"""Any scikit-learn classifier as the model of an active run: refitted to all labels in each round.

Its state is the data it was fitted to: a resume refits it with the same seeds; no estimator is saved.

Shapes: L labelled examples, B rows of a batch, C classes, D features of an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from ludus.active.config import ActiveConfig
from ludus.active.examples import PoolExamples
from ludus.active.pool import Pool
from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.fit.update import count_examples
from ludus.nn.model import Model
from ludus.seeds import derive

_SMALLEST = 1e-12


class Says(Protocol):
    """The interface of a fitted classifier."""

    classes_: np.ndarray

    def predict_proba(self, X: np.ndarray) -> np.ndarray: ...


class Estimator(Says, Protocol):
    """The methods of a scikit-learn classifier that are used."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self: ...
    def get_params(self, deep: bool = True) -> dict[str, object]: ...
    def set_params(self, **params: object) -> Self: ...


class Classifier(Model):
    """A scikit-learn classifier as a Model; before the first fit its predictions are uniform."""

    module: Probabilities

    def __init__(self, estimator: Estimator, *, classes: int) -> None:
        """`estimator` has fit and predict_proba; it is copied and itself stays unfitted."""
        for method in ("fit", "predict_proba", "get_params"):
            if not callable(getattr(estimator, method, None)):
                raise ConfigError(
                    f"a {type(estimator).__name__} has no method {method}; give a classifier of scikit-learn"
                    " that predicts probabilities"
                )
        if classes < 2:
            raise ConfigError(f"classes is {classes}; a classifier distinguishes 2 or more")
        super().__init__(Probabilities(classes), loss="cross_entropy")
        self.architecture = type(estimator).__name__.lower()
        self._estimator = estimator

    def fit(self, inputs: np.ndarray, labels: np.ndarray, *, seed: int) -> None:
        """Fit a copy of the estimator with its random state derived from this seed."""
        from sklearn.base import clone

        fresh = clone(self._estimator)
        names = [key for key in fresh.get_params() if key.split("__")[-1] == "random_state"]
        fresh.set_params(**dict.fromkeys(names, seed))
        if len(np.unique(labels)) == 1:
            # Most classifiers refuse a single class; the prediction is known anyway.
            self.module.says = Always(int(labels[0]))
            return
        try:
            self.module.says = fresh.fit(inputs, labels)
        except (ValueError, TypeError) as error:
            problem = str(error).splitlines()[0]
            raise LudusError(f"the {type(fresh).__name__} cannot be fitted: {problem}") from None

    def forget(self) -> None:
        """Reset to the state before the first fit."""
        self.module.says = None


class Always:
    """Predicts one class for every example."""

    def __init__(self, label: int) -> None:
        self.classes_ = np.array([label])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return (B, 1) ones."""
        return np.ones((len(X), 1))


class Probabilities(nn.Module):
    """A network without parameters that outputs the log probabilities of a fitted classifier."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes
        self.says: Says | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (B, C) log probabilities."""
        probs_BC = np.full((len(inputs), self._classes), 0.0 if self.says else 1.0)
        if self.says is not None:
            # Classes without a label yet have no column.
            probs_BC[:, self.says.classes_] = self.says.predict_proba(flat(inputs))
        found_BC = torch.from_numpy(probs_BC).clamp(min=_SMALLEST).log().float()
        return found_BC.to(inputs.device)


def flat(inputs: object) -> np.ndarray:
    """Return the examples flattened, (B, D)."""
    if not isinstance(inputs, Tensor):
        raise LudusError(
            f"a scikit-learn classifier was given a {type(inputs).__name__}; its examples are rows of numbers"
        )
    found: np.ndarray = inputs.detach().flatten(1).cpu().numpy()
    return found


class NoState:
    """A null optimizer."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state)


class Refit:
    """Fits a classifier to all labels at the last batch of an epoch; a part."""

    ema = None
    num_gathered = 0
    num_in_batch = 0

    def __init__(self, model: Classifier, examples: PoolExamples, pool: Pool, seed: int) -> None:
        self.model, self.optimizer = model, NoState()
        self._examples, self._pool, self._seed = examples, pool, seed
        self._num_fitted = 0

    def step(
        self, batch: object, batch_idx: int, *, learning_rate: float, is_last: bool
    ) -> dict[str, Any]:
        """Fit, once all batches of the epoch were passed."""
        self.num_in_batch = count_examples(batch)
        if is_last:
            self._fit(self._pool.num_labelled)
        return {}

    def _fit(self, count: int) -> None:
        rows_L, labels_L = self._pool.labelled[:count], self._pool.labels[:count]
        seed = derive(self._seed, "classifier", count) % 2**32
        inputs_LD = flat(self._examples.inputs(rows_L))
        self.model.fit(inputs_LD, labels_L.numpy(), seed=seed)
        self._num_fitted = count

    def inexact_because(self) -> list[str]:
        """Return nothing: the estimator's random state is seeded."""
        return []

    def check(self) -> None:
        """Do nothing: nothing can overflow."""

    def close_epoch(self) -> dict[str, float]:
        """Return loss and accuracy on the labelled examples it was fitted to."""
        if not self._num_fitted:
            return {}
        labels_L = self._pool.labels[: self._num_fitted]
        inputs = self._examples.inputs(self._pool.labelled[: self._num_fitted])
        found = self.model.evaluation_step((inputs, labels_L.to(inputs.device)), 0)
        correct = float(found["correct"]) / self._num_fitted
        return {"train/epoch_loss": float(found["loss"]), "train/epoch_accuracy": correct}

    def drop_unfinished(self) -> None:
        """Do nothing: no gradients are accumulated."""

    def state_dict(self) -> dict[str, Any]:
        return {"num_fitted": self._num_fitted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refit to the same number of labels; the pool has been loaded before."""
        states.check_keys(state, "num_fitted")
        count = states.whole(state, "num_fitted", at_most=self._pool.num_labelled)
        self.model.forget()
        self._num_fitted = 0
        if count:
            self._fit(count)


def refusals(config: ActiveConfig) -> Iterator[str]:
    """Yield the config settings that a classifier without gradient steps does not support."""
    wanted = {
        "loss": "cross_entropy", "max_epochs": 1, "accumulate": 1, "ema_decay": None,
        "evaluation.keep": 0, "evaluation.patience": None, "evaluation.target": None,
        "keep_every_epochs": 0, "round_start": "cold",
        "parameter_groups": [], "gradient_checkpointing": [], "new_head": None,
    }  # fmt: skip
    for key, value in wanted.items():
        if config[key] != value:
            yield f"set '{key}' to {'null' if value is None else value}"
