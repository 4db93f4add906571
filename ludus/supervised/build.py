"""Build the model and the evaluators of a config, in any process, and check them before training."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ludus.config.registry import find, kinds
from ludus.core.errors import ConfigError
from ludus.data.batches.memory import Batches
from ludus.fit.preflight import check_model
from ludus.judge.evaluator import check_made_for, refuse_other_keys
from ludus.nn.model import FROM_MODEL, Model
from ludus.nn.precision import autocast_in, lower_weights
from ludus.seeds import derive, forked
from ludus.session.device import resolve_device
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import CollatedBatches, make_datasets
from ludus.supervised.evaluator import SupervisedEvaluator

if TYPE_CHECKING:
    from ludus.supervised.trainer import BaseTrainer

_MAX_NAME = 150
_PLAIN = (bool, int, float, str, tuple, type(None))
_NO_LOADERS = {"train": None, "validation": None, "test": None}


def make_model(
    config: SupervisedConfig,
    given: Model | None,
    data: Batches,
    device: torch.device,
) -> Model:
    """Return the given model, or the config's: on the device, with trainable parameters."""
    if given is None and config.model is None:
        raise ConfigError("'model' is null and no model was set; call set_model(Model(...))")
    model = given
    if model is None:
        assert config.model is not None
        with forked(derive(config.seed, "model")):
            model = Model(config.model, loss=config.loss)
    if model.loss is None:
        model.loss = config.loss
    if model.loss != config.loss:
        raise ConfigError(
            f"'loss' is {config.loss}, but the model was made for {model.loss}; agree on one"
        )
    model.module.to(device)
    if isinstance(data, CollatedBatches):
        data.check_network(model.module)
    lower_weights(model.module, config.precision)
    model.train()
    with forked(0), autocast_in(config.precision, device):
        check_model(model, data)
    return model


def refuse_config_of_another(trainer: BaseTrainer, config: object) -> None:
    """Raise ConfigError if the config belongs to another trainer, whose keys have no effect here."""
    kind = str(getattr(config, "kind", None))
    if kind in kinds("trainer") and type(config) is not trainer.Config:
        meant = find("trainer", kind)
        if not isinstance(trainer, meant) and meant.Config is not trainer.Config:
            raise ConfigError(
                f"the config is of kind {kind}, which {type(trainer).__name__} does not do; give it to"
                f" {meant.__name__}, with the same arguments"
            )


def notices(
    config: SupervisedConfig, device: torch.device, *, has_mean: bool
) -> Iterator[tuple[str, str]]:
    """Yield what a user should know when a run begins: the event and the sentence."""
    if config.tf32 is True and device.type != "cuda":
        yield "tf32", f"'tf32' is true, which does nothing on {device.type}"
    if has_mean:
        decay, kind = config.ema_decay, config.optimizer.kind
        by = f"ema_decay {decay:g}" if decay is not None else kind
        yield (
            "evaluated_weights",
            f"validation, test and kept models are of the mean of the weights ({by}), not of the last"
            " weights",
        )


def check_evaluator(trainer: BaseTrainer) -> None:
    """Raise ConfigError, before any work is done, if a trainer's evaluator does not fit its config."""
    config, evaluator = trainer.config, trainer.evaluator
    if evaluator is not None and not config.evaluate_every_epochs:
        raise ConfigError(
            "an evaluator was set, but 'evaluate_every_epochs' is 0, so it would never be asked; set it to 1"
        )
    if not _may_log_more(trainer):
        config.refuse_unlogged()
    check_made_for(type(trainer), config, evaluator)
    scorer = getattr(evaluator, "scorer", None)
    if isinstance(scorer, SupervisedEvaluator):
        with autocast_in(config.precision, trainer.device):
            check_model(trainer.model, scorer.data, what="be measured on the data of the evaluator")
    if (async_evaluator := trainer.async_evaluator) is None:
        return
    rebuilt = {"kind", "model", "loss"}
    refuse_other_keys(config, async_evaluator, free={*config.model_dump()} - rebuilt)
    if trainer.is_own_model:
        raise ConfigError(
            "an AsyncEvaluator rebuilds the model from the config in another process, but this one"
            " was set by the script; register it as a model kind, or set a ludus.Evaluator"
        )
    run = trainer.run
    async_evaluator.is_interrupted = lambda: run.interrupted
    async_evaluator.on_event = lambda text: run.tell(text, event="evaluation_failed")
    async_evaluator.check()


def _may_log_more(trainer: BaseTrainer) -> bool:
    """Return whether a script's own model, evaluator, trainer or callback may log other metrics."""
    model, steps = trainer.model, ("training_step", "evaluation_step")
    is_own = any(getattr(type(model), s, None) is not getattr(Model, s) for s in steps)
    is_own = is_own or model.loss == FROM_MODEL
    is_given = trainer.evaluator is not None or bool(trainer.callbacks)
    return is_own or is_given or not type(trainer).__module__.startswith("ludus.")


def evaluator_of(config: SupervisedConfig) -> SupervisedEvaluator:
    """Return the evaluator that runs of this config use: on its validation data."""
    return _with_data(config, resolve_device(config.settings.device))[1]


def _with_data(
    config: SupervisedConfig, device: torch.device
) -> tuple[Batches, SupervisedEvaluator]:
    """Return the training data of a config and the evaluator on its validation data."""
    if config.data is None:
        raise ConfigError(
            "'data' is null in the config of this evaluator, which loads what it measures on by itself;"
            " name a data set there, or give ludus.Evaluator(score=...) a function"
        )
    datasets = make_datasets(config, _NO_LOADERS, device, has_evaluator=True)
    if "validation" not in datasets.evaluators:
        raise ConfigError(
            "the data of this evaluator's config has no validation part; set data.validation_fraction"
        )
    return datasets.train, datasets.evaluators["validation"]


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
        data, evaluator = _with_data(self._config, device)
        return make_model(self._config, None, data, device), evaluator

    def evaluate(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Return the metrics of these weights; the result is the same in every process."""
        model, evaluator = self.rebuild()
        model.load_state_dict(weights)
        return evaluator.evaluate(model)[1]


def named_in_full(trainer: BaseTrainer, name: str) -> str:
    """Return the name of saved weights: `<architecture>_<dataset>_<experiment>_<name>`."""
    words = [trainer.model.architecture, trainer.dataset_name, trainer.config.experiment]
    given = re.sub(r"[^a-z0-9_.-]+", "-", "_".join(words).lower()).lstrip(".-")
    return f"{given[:_MAX_NAME]}_{name}"


def described(optimizer: object, options: Mapping[str, object]) -> str:
    """Return the name of a script's optimizer, with the options that can be recorded by value."""
    name = str(getattr(optimizer, "__name__", type(optimizer).__name__))
    words = [f"{key}={value!r}" for key, value in options.items() if isinstance(value, _PLAIN)]
    return f"{name}({', '.join(sorted(words))})" if words else name
