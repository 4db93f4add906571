"""Validation of a supervised model in any process, from its config and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core.errors import ConfigError
from ludus.session.device import resolve_device
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import Datasets, make_datasets
from ludus.supervised.evaluator import SupervisedEvaluator
from ludus.supervised.preflight import make_model

_NO_LOADERS = {"train": None, "validation": None, "test": None}


def evaluator_of(config: SupervisedConfig) -> SupervisedEvaluator:
    """Return the evaluator that runs of this config use: on its validation data."""
    return _validation(_datasets(config, resolve_device(config.settings.device)))


def _datasets(config: SupervisedConfig, device: torch.device) -> Datasets:
    if config.data is None:
        raise ConfigError(
            "'data' is null in the config of this evaluator, which loads what it measures on by itself;"
            " name a data set there, or give ludus.Evaluator(score=...) a function"
        )
    return make_datasets(config, _NO_LOADERS, device, has_evaluator=True)


def _validation(datasets: Datasets) -> SupervisedEvaluator:
    if "validation" not in datasets.evaluators:
        raise ConfigError(
            "the data of this evaluator's config has no validation part; set data.validation_fraction"
        )
    return datasets.evaluators["validation"]


class SupervisedJob:
    """A validation without its weights; computed on the CPU, whatever the run's device."""

    def __init__(self, config: SupervisedConfig) -> None:
        if config.model is None:
            raise ConfigError(
                "'model' is null in the config of this evaluator, which rebuilds the model in another"
                " process; name a model kind there, or give ludus.Evaluator(score=...) a function"
            )
        self._config = config
        self.metrics = config.metrics_of("validation")

    def rebuild(self) -> tuple[Any, SupervisedEvaluator]:
        """Return an untrained model and its evaluator."""
        device = torch.device("cpu")
        datasets = _datasets(self._config, device)
        return make_model(self._config, None, datasets.train, device), _validation(datasets)

    def evaluate(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Return the metrics of these weights; the result is the same in every process."""
        model, evaluator = self.rebuild()
        model.load_state_dict(weights)
        return evaluator.evaluate(model)[1]
