"""Build and load transformers models, and add PEFT adapters; every mistake is reported in one sentence.

Nothing is downloaded, no code in a model's folder is run, and weights are read from safetensors alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import torch
from safetensors import SafetensorError
from torch import nn

from ludus.config.base import Fraction, Positive, PositiveFloat, StrictConfig
from ludus.config.optional import optional
from ludus.core.errors import ConfigError, nearest


class ModelConfig(Protocol):
    """The config of a transformers model, as far as its keys are needed."""

    model_type: str
    attribute_map: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return every value by name."""


def build(auto_class: str, values: Mapping[str, Any]) -> nn.Module:
    """Return a model of this architecture with random weights, from torch's global generator."""
    transformers = optional("transformers", key="model.kind huggingface", extra="huggingface")
    given = dict(values)
    model_type = given.pop("model_type")
    known = list(transformers.CONFIG_MAPPING.keys())
    if model_type not in known:
        raise ConfigError(
            f"'model.config.model_type' is {model_type}, which transformers does not know."
            f"{nearest(model_type, known)}"
        )
    with _as_config_errors("model.config"), quiet(transformers):
        _check_values(transformers.AutoConfig.for_model(model_type), given)
        config = transformers.AutoConfig.for_model(model_type, **given)
        network: nn.Module = getattr(transformers, auto_class).from_config(
            config, dtype=torch.float32
        )
    return network


def load(auto_class: str, path: str, values: Mapping[str, Any]) -> tuple[nn.Module, list[str]]:
    """Return the model of a local folder, in float32, and the names of weights that the folder lacks."""
    transformers = optional("transformers", key="model.kind huggingface", extra="huggingface")
    _check_folder(Path(path))
    with _as_config_errors("model.path"), quiet(transformers):
        options = {"local_files_only": True, "trust_remote_code": False}
        _check_values(transformers.AutoConfig.from_pretrained(path, **options), values)
        config = transformers.AutoConfig.from_pretrained(path, **options, **values)
        network, info = getattr(transformers, auto_class).from_pretrained(
            path, config=config, **options, use_safetensors=True, dtype=torch.float32,
            output_loading_info=True, ignore_mismatched_sizes=True,
        )  # fmt: skip
    for name, found, wanted in sorted(info["mismatched_keys"]):
        raise ConfigError(
            f"'model.path' has {name} as {tuple(found)}, and 'model.config' makes it {tuple(wanted)}; put the"
            " value back, or save the model in that folder without this layer, so that it begins random"
        )
    return network, sorted(info["missing_keys"])


class LoraConfig(StrictConfig):
    """Low-rank adapters (LoRA, PEFT): the base is frozen, and small matrices next to its layers learn."""

    kind: Literal["lora"]
    """Low-rank adaptation."""
    r: Positive
    """The rank of the adapters: the inner dimension of the two matrices of each."""
    alpha: PositiveFloat
    """The scale of an adapter: its output is multiplied by alpha / r."""
    dropout: Fraction
    """The dropout rate: the fraction of an adapter's inputs zeroed while training."""
    target_modules: list[str] | None
    """The names, or endings of names, of the layers that get an adapter; null takes PEFT's default."""
    modules_to_save: list[str]
    """Layers that are trained and saved whole, such as a new classifier."""
    bias: Literal["none", "all", "lora_only"]
    """The biases of the base that are trained too: none, all, or those of the layers with an adapter."""


def with_lora(network: nn.Module, adapter: LoraConfig, *, key: str = "model.adapter") -> nn.Module:
    """Return the network with LoRA adapters; all but these and modules_to_save is frozen.

    `key` is that of the section in the config.
    """
    layers = {part for name, _ in network.named_modules() for part in name.split(".")}
    for name in adapter.modules_to_save:
        if name not in layers:
            raise ConfigError(
                f"'{key}.modules_to_save' has {name}, which is no layer of the model."
                f"{nearest(name, layers)}"
            )
    peft = optional("peft", key=key, extra="huggingface")
    with _as_config_errors(key):
        config = peft.LoraConfig(
            r=adapter.r, lora_alpha=adapter.alpha, lora_dropout=adapter.dropout, bias=adapter.bias,
            target_modules=adapter.target_modules, modules_to_save=adapter.modules_to_save or None,
        )  # fmt: skip
        found: nn.Module = peft.get_peft_model(network, config)
    return found


def _check_folder(folder: Path) -> None:
    """Raise ConfigError unless this is a folder with a model's config and weights in safetensors."""
    if not (folder / "config.json").is_file():
        is_adapter = (folder / "adapter_config.json").is_file()
        what = (
            "holds a PEFT adapter, not a model" if is_adapter else "is no folder with a config.json"
        )
        raise ConfigError(
            f"'model.path' is {folder}, which {what}; save a model there with save_pretrained (nothing is"
            " downloaded)"
        )
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(file.name for file in folder.glob("*.bin"))
        what = f"its weights pickled ({pickled[0]})" if pickled else "no weights"
        raise ConfigError(
            f"'model.path' is {folder}, which has {what}; ludus reads safetensors alone, since such a"
            " file can run code: save the model again with save_pretrained"
        )


def _check_values(config: ModelConfig, values: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key that the model's config does not have; transformers would ignore it."""
    known = {*config.to_dict(), *config.attribute_map, "num_labels"}
    for name in values:
        if name not in known:
            raise ConfigError(
                f"'model.config.{name}' is no value of a {config.model_type} config."
                f"{nearest(name, known)}"
            )


@contextlib.contextmanager
def _as_config_errors(key: str) -> Iterator[None]:
    """Turn exceptions of transformers and PEFT into a one-sentence ConfigError about a key."""
    try:
        yield
    except ConfigError:
        raise
    except (
        OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError, ImportError, SafetensorError
    ) as error:  # fmt: skip
        raise ConfigError(f"'{key}': {' '.join(str(error).split())[:300]}") from None


@contextlib.contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Silence transformers' progress bars and reports while a model is built."""
    logging = transformers.utils.logging
    before, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if has_bar:
            logging.enable_progress_bar()
