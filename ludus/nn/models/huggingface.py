"""A model of Hugging Face's transformers: from a config with random weights, or from a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from torch import nn

from ludus.config.base import Fraction, Positive, PositiveFloat, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.transformers_models import build, load, with_lora

Value = str | bool | int | float | list[Any] | dict[str, Any] | None
"""What a value in a config.json can be."""


class LoraConfig(StrictConfig):
    """Low-rank adapters (PEFT): the base is frozen, and small matrices beside its layers learn."""

    kind: Literal["lora"]
    """Low-rank adaptation."""
    r: Positive
    """The rank of the adapters: how many rows and columns the two matrices of each have."""
    alpha: PositiveFloat
    """What an adapter adds is multiplied by alpha / r."""
    dropout: Fraction
    """The share of an adapter's inputs that are silenced at random while training."""
    target_modules: list[str] | None
    """The names of the layers that get an adapter, or their ends; null takes PEFT's choice for the model."""
    modules_to_save: list[str]
    """Layers that are trained and saved whole, such as a new classifier."""
    bias: Literal["none", "all", "lora_only"]
    """Which biases of the base learn too: none, all, or those of the layers with an adapter."""


@register("model", "huggingface")
class HuggingFace(nn.Module):
    """A transformers model, called by keywords; it returns what that model returns."""

    class Config(StrictConfig):
        """Which model, and where its weights come from."""

        kind: Literal["huggingface"]
        """A model of Hugging Face's transformers (pip install 'ludus[huggingface]')."""
        auto_class: Literal[
            "AutoModelForSequenceClassification",
            "AutoModelForCausalLM",
            "AutoModelForMaskedLM",
            "AutoModelForSeq2SeqLM",
            "AutoModelForTokenClassification",
            "AutoModelForQuestionAnswering",
            "AutoModelForMultipleChoice",
            "AutoModelForImageClassification",
        ]
        """The class of transformers that puts the head of the task on the model."""
        path: str | None
        """A local folder that save_pretrained wrote, with safetensors; null begins with random weights."""
        config: dict[str, Value]
        """Values of the model's config: with a path those to change (num_labels), without one model_type and
        all that is not as the architecture has it."""
        adapter: LoraConfig | None
        """A PEFT adapter that learns instead of the weights and is saved alone; null trains them all."""

        def problems(self) -> Iterator[str]:
            """Yield what only shows when keys are read together."""
            has_type = isinstance(self.config.get("model_type"), str)
            if self.path is None and not has_type:
                yield "'path' is null, and 'config' names no model_type (bert, gpt2); give one of them"
            if self.path is not None and "model_type" in self.config:
                yield "'config' names a model_type, which the folder at 'path' decides; remove it"
            if self.adapter is not None and self.path is None:
                yield (
                    "'adapter' is saved without its base, so the base needs a folder: save the model with"
                    " save_pretrained and give its 'path', or set 'adapter' to null"
                )

    @staticmethod
    def code_modules(config: Config) -> list[str]:
        """Return the libraries whose versions decide what is computed."""
        return ["transformers", *(["peft"] if config.adapter is not None else [])]

    def __init__(self, config: Config) -> None:
        super().__init__()
        missing: list[str] = []
        if config.path is None:
            network = build(config.auto_class, config.config)
        else:
            network, missing = load(config.auto_class, config.path, config.config)
        if (adapter := config.adapter) is not None:
            _refuse_random(missing, adapter)
            network = with_lora(
                network, r=adapter.r, alpha=adapter.alpha, dropout=adapter.dropout, bias=adapter.bias,
                target_modules=adapter.target_modules, modules_to_save=adapter.modules_to_save,
            )  # fmt: skip
        self.network: nn.Module = network

    def forward(self, **inputs: Any) -> Any:
        """Return what the model returns: an object with `logits` and, where `labels` are given, `loss`."""
        return self.network(**inputs)


def _refuse_random(missing: list[str], adapter: LoraConfig) -> None:
    """Raise ConfigError where a layer that the folder has no weights of would stay random."""
    for name in missing:
        if not {*name.split(".")} & {*adapter.modules_to_save}:
            layer = name.rpartition(".")[0]
            raise ConfigError(
                f"'model.path' has no weights of {layer}, so it begins random and 'model.adapter' would leave"
                f" it so; add it to 'model.adapter.modules_to_save': [{layer.split('.')[0]}]"
            )
