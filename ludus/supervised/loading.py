"""The model of a supervised run, rebuilt without its data: for `ludus.load`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.abilities import Kept, Program, Supplied, made, ungiven
from ludus.core.errors import ConfigError
from ludus.nn.model import Model
from ludus.nn.precision import lower_weights
from ludus.session.device import resolve_device
from ludus.session.prepared import prepare
from ludus.supervised import other_data, traced
from ludus.supervised.config import SupervisedConfig

if TYPE_CHECKING:
    from ludus.supervised.trainer import BaseTrainer

WeightsOf = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class RebuiltModel:
    """A model with no data and no optimizer."""

    takes_inputs = True

    def __init__(
        self,
        config: SupervisedConfig,
        model: Model,
        whole: WeightsOf,
        loaders: Mapping[str, object] = MappingProxyType({}),
        inputs: object = None,
    ) -> None:
        """`whole` finds the evaluated weights in a state with the help of the prepared trainer.

        `inputs` are examples to trace the network with; without them it is traced with those of its data.
        """
        self._config, self._model, self._whole = config, model, whole
        self._loaders, self._inputs = loaders, inputs

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state that would be evaluated."""
        section = self._config.optimizer
        rule = find("optimizer", kind_of(section)) if kind_of(section) != "given" else None
        if getattr(rule, "averages", False):
            # The optimizer alone can tell them.
            return self._whole(state)
        weights: dict[str, Tensor] = dict(state["model"])
        means = state["update"].get("ema") or {}
        return weights | {name: mean.to(weights[name].dtype) for name, mean in means.items()}

    def measure_others(
        self, weights: Mapping[str, Any], about: Mapping[str, Any], changes: Sequence[str]
    ) -> Mapping[str, float]:
        """Return the metrics of these weights on the data of the config with `key=value` changed."""
        return other_data.evaluator(self._config, self._model, changes).measure(
            self._model, weights
        )

    def programs(
        self, weights: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Mapping[str, Program]:
        """Return the network with these weights, and the first inputs of its training data."""
        self._model.load_state_dict(weights)
        return {"": traced.program(self._config, self._model, self._loaders, self._inputs)}

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any]) -> nn.Module:
        """Return the network with these weights, in eval mode."""
        self._model.load_state_dict(weights)
        return self._model.module.eval()


def given_model(given: Supplied, own: Model | None, name: str) -> Model | None:
    """Return the model that the caller or the script gave; None takes that of the config.

    Raises ConfigError if the script gave one when the run began, and it is not given again.
    """
    if given.network is not None:
        return as_model(given.network)
    if own is None and "model" in given.by_script:
        raise ungiven("network", name)
    return own


def as_model(network: object) -> Model:
    """Return a Model of a network, or of what a function makes."""
    found = made(network)
    if isinstance(found, Model):
        return found
    if not isinstance(found, nn.Module):
        raise ConfigError(
            f"network was given a {type(found).__name__}; give a torch network, or a function without"
            " arguments that makes one"
        )
    return Model(found)


def on_device(config: SupervisedConfig, model: Model) -> Model:
    """Return the model as it is in training: on the device, with weights of the config's precision."""
    model.module.to(resolve_device(config.settings.device))
    if model.loss is None:
        model.loss = config.loss
    lower_weights(model.module, config.precision)
    return model


def kept(trainer: BaseTrainer, given: Supplied) -> Kept:
    """Return the model of a trainer that is not prepared; a method of it."""
    config, own = trainer.config, trainer.model if trainer.is_own_model else None
    model = given_model(given, own, config.name)
    if model is None:
        if config.model is None:
            raise ConfigError("'model' is null and no network was given; give one (network=...)")
        model = Model(config.model, loss=config.loss)
    return RebuiltModel(
        config,
        on_device(config, model),
        lambda state: prepare(trainer).weights_of(state),
        trainer.loaders,
        given.inputs,
    )
