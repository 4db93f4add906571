"""The language model of a fine-tuning run: at its start, and with the weights that the run kept."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ludus.core.abilities import Supplied
from ludus.core.errors import ConfigError
from ludus.nn.precision import lower_weights
from ludus.nn.transformers_models import LoraConfig, with_lora
from ludus.seeds import derive, forked
from ludus.session.device import resolve_device
from ludus.text.models.language_model import ADAPTER, LanguageModel, check_directory, load_model
from ludus.text.models.new_model import make_model
from ludus.text.tuning.config import TextTuningConfig
from ludus.text.tuning.tuned_model import TunedModel


def starting_model(config: TextTuningConfig, device: torch.device) -> LanguageModel:
    """Return the model that a run starts from, on the device, with adapters if the config has any."""
    if config.model is None:
        assert config.new_model is not None
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(config.new_model, Path(folder) / "new", name="new")
        model.module.to(device)
    elif config.lora is None:
        model = load_model(config.model, name=Path(config.model).name, device=device)
    else:
        model = _with_adapters(Path(config.model), config.lora, device, seed=config.seed)
    lower_weights(model.module, config.precision)
    if not any(weight.requires_grad for weight in model.module.parameters()):
        raise ConfigError(f"the model {config.model} has no weight that learns")
    return model


def _with_adapters(
    directory: Path, lora: LoraConfig, device: torch.device, *, seed: int
) -> LanguageModel:
    """Return the model of a directory with new LoRA adapters; any is loaded through transformers."""
    from ludus.text.models.huggingface import HuggingFaceNetwork, load_huggingface

    check_directory(directory)
    if (directory / ADAPTER).is_file():
        raise ConfigError(
            f"'model' is {directory}, an adapter already; set 'lora' to null to train it further"
        )
    model = load_huggingface(directory.absolute(), name=directory.name, device=device, dtype=None)
    assert isinstance(model.module, HuggingFaceNetwork)
    with forked(derive(seed, "lora")):
        network: nn.Module = with_lora(model.module.network, lora, key="lora").to(device)
    return dataclasses.replace(model, module=HuggingFaceNetwork(network))


class KeptLanguageModel:
    """The language model of a run without its data."""

    def __init__(self, model: TunedModel) -> None:
        self._model = model

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state."""
        return weights_in(state)

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any]) -> LanguageModel:
        """Return the language model with these weights, in eval mode."""
        self._model.load_state_dict(weights)
        self._model.eval()
        return self._model.language_model


def weights_in(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the weights in a saved state."""
    found: Mapping[str, Any] = state["model"]
    return found


def kept_model(config: TextTuningConfig, given: Supplied) -> KeptLanguageModel:
    """Return the language model of a trainer that is not prepared."""
    if given.network is not None:
        raise ConfigError("the network of a text_tuning run is that of its config; give none")
    model = starting_model(config, resolve_device(config.settings.device))
    return KeptLanguageModel(TunedModel(model, config.method))
