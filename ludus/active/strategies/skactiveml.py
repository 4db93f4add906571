"""Query strategies of scikit-activeml, on the features and probabilities of the model.

Shapes: N candidate rows, L labelled rows, D features, C classes.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ludus.active.scoring import Need
from ludus.active.strategy import Strategy, View
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError

ByFeatures = Literal["CoreSet", "TypiClust", "ProbCover", "RandomSampling", "GreedySamplingX"]
ByClassifier = Literal["UncertaintySampling", "ContrastiveAL", "Falcun"]
_BY_CLASSIFIER = ("UncertaintySampling", "ContrastiveAL", "Falcun")


@register("strategy", "skactiveml")
class Skactiveml(Strategy):
    """Passes the pool to one of a list of scikit-activeml strategies; holds all features in memory."""

    needs: ClassVar[frozenset[Need]] = frozenset({"features", "probabilities"})

    class Config(StrictConfig):
        """The name of the strategy."""

        kind: Literal["skactiveml"]
        """A query strategy of scikit-activeml, which has to be installed."""
        name: ByFeatures | ByClassifier
        """Its class in skactiveml.pool, with its default options."""

    def __init__(self, config: Config) -> None:
        if find_spec("skactiveml") is None:
            raise ConfigError(
                "'strategy.kind' is skactiveml, and scikit-activeml is not installed; pip install"
                " scikit-activeml, or use a strategy of ludus: core_set, typiclust, badge, margin"
            )
        self._name = config.name

    def choose(self, view: View, count: int) -> Tensor:
        """Return the rows that it chooses, with a seed of this round."""
        rows = torch.cat([view.labelled, view.rows])
        log_probs, features = view.outputs(rows)
        features_ND = features.cpu().double().numpy()
        probs_NC = log_probs.exp().cpu().double().numpy()
        known = len(view.labelled)
        labels_N = np.full(len(rows), np.nan)
        labels_N[:known] = view.labels.numpy()
        seed = int(torch.randint(2**31, (), generator=view.generator))
        own = {"n_classes": probs_NC.shape[1]} if self._name == "ProbCover" else {}
        chooser = getattr(import_module("skactiveml.pool"), self._name)(random_state=seed, **own)
        more: dict[str, Any] = {}
        if self._name in _BY_CLASSIFIER:
            more = {"clf": _classifier(features_ND, probs_NC, labels_N), "fit_clf": False}
        places = np.arange(known, len(rows))
        found = chooser.query(features_ND, labels_N, candidates=places, batch_size=count, **more)
        return rows[torch.as_tensor(np.asarray(found, dtype=np.int64))]


def _classifier(features_ND: np.ndarray, probs_NC: np.ndarray, labels_N: np.ndarray) -> object:
    """Return a fitted classifier of theirs that returns the model's predictions for these features."""
    base: Any = import_module("skactiveml.base").SkactivemlClassifier
    places = {row.tobytes(): place for place, row in enumerate(features_ND)}

    def predict_proba(self: object, X: np.ndarray) -> np.ndarray:
        asked = np.ascontiguousarray(X, dtype=np.float64)
        found: np.ndarray = probs_NC[[places[row.tobytes()] for row in asked]]
        return found

    made = {"predict_proba": predict_proba, "fit": lambda self, X, y, sample_weight=None: self}
    classes = list(range(probs_NC.shape[1]))
    ours = type("Said", (base,), made)(classes=classes)
    ours._validate_data(features_ND, labels_N, None)
    ours.classes_ = np.array(classes)
    return ours
