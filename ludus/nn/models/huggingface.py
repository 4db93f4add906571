"""A Hugging Face transformers model: from a config with random weights, or from a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from torch import nn

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.transformers_models import LoraConfig, build, load, with_lora

Value = str | bool | int | float | list[Any] | dict[str, Any] | None
"""The types of a value in a config.json."""


@register("model", "huggingface")
class HuggingFace(nn.Module):
    """A transformers model, called by keywords; it returns that model's output."""

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
        """The transformers class that adds the head of the task to the model."""
        path: str | None
        """A local folder that save_pretrained wrote, with safetensors; null starts from random weights."""
        config: dict[str, Value]
        """Values of the model's config: with a path those to override (num_labels), without one model_type
        and those that differ from the architecture's defaults.
        """
        adapter: LoraConfig | None
        """A PEFT adapter that is trained in place of the weights and saved alone; null trains all weights."""

        def problems(self) -> Iterator[str]:
            """Yield the problems that only a combination of keys shows."""
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
        """Return the libraries whose versions affect the result."""
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
            network = with_lora(network, adapter)
        self.network: nn.Module = network

    def forward(self, **inputs: object) -> Any:
        """Return the model's output: an object with `logits` and, if `labels` are given, `loss`."""
        return self.network(**inputs)


def _refuse_random(missing: list[str], adapter: LoraConfig) -> None:
    """Raise ConfigError if a layer without weights in the folder would stay random."""
    for name in missing:
        if not {*name.split(".")} & {*adapter.modules_to_save}:
            layer = name.rpartition(".")[0]
            raise ConfigError(
                f"'model.path' has no weights of {layer}, so it begins random and 'model.adapter' would leave"
                f" it so; add it to 'model.adapter.modules_to_save': [{layer.split('.')[0]}]"
            )
