"""The model that predicts a stream, kept in the edge's folder: models/update_<number>.

Shapes: B examples, C classes, D features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.active.drift.estimator import Window
from ludus.active.models.features import Features
from ludus.active.scoring import log_probabilities
from ludus.active.stream.wire import Message, WireError
from ludus.config.base import ModelSection, StrictConfig
from ludus.config.sections import validate
from ludus.nn.model import CLASS_LOSSES, Inputs, Model
from ludus.store.local import LocalStorage
from ludus.store.models import read_model, write_model

# A model saved here, or the remains of one after a kill; files of other names are the user's.
_OWN = re.compile(r"update_[0-9]+(\.(tmp|trash|aside)-[0-9]+)?")


class Predictor:
    """The model sent by a datacenter, with the number of its update; none at first."""

    def __init__(self, features_layer: str | None, storage: LocalStorage) -> None:
        self._features, self._storage = Features(features_layer), storage
        self._model: Model | None = None
        self.update = -1
        """The number of the model's last update; -1 before there is a model."""

    def take(self, answer: Message) -> str:
        """Load the received model, once it is checked; return its name."""
        header = answer.header
        update, name = header.get("update"), str(header.get("name"))
        if not isinstance(update, int) or isinstance(update, bool) or update < 0:
            raise WireError("the datacenter sent a model without its number")
        about = {"model": header.get("model"), "loss": header.get("loss"), "name": name}
        self._model, self.update = self._built(answer.tensors, about), update
        write_model(self._storage, f"models/update_{update}", self._model.state_dict(), about)
        return name

    def load(self, update: int) -> None:
        """Load the model saved under this number."""
        self._model = self._built(*read_model(self._storage, f"models/update_{update}"))
        self.update = update

    def forget_others(self) -> None:
        """Delete the earlier models, once nothing on disk refers to them."""
        for name in self._storage.names("models"):
            if _OWN.fullmatch(name) and name != f"update_{self.update}":
                self._storage.remove(f"models/{name}")

    def look(self, inputs: Inputs, targets_B: Tensor) -> Window:
        """Return the model's predictions and features of some examples."""
        model = self._model
        assert model is not None
        with torch.no_grad(), model.evaluating():
            outputs, features = self._features(model, inputs)
        log_probs_BC = log_probabilities(outputs, model.loss)
        return Window(log_probs_BC, targets_B, features.flatten(1).float())

    def _built(self, weights: Mapping[str, Tensor], about: Mapping[str, Any]) -> Model:
        section = validate(_Given, {"model": about.get("model")}, source="the datacenter's model")
        loss = about.get("loss")
        if loss not in CLASS_LOSSES:
            raise WireError("the datacenter sent a model that predicts no classes")
        model = Model(section.model, loss=loss)
        model.load_state_dict(weights)
        self._features.check(model)
        return model


class _Given(StrictConfig):
    model: ModelSection
    """The network sent by the datacenter."""
