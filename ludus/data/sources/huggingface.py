"""Texts in a local file or a folder of Hugging Face datasets, tokenized by a local tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from ludus.config.base import Fraction, Positive, StrictConfig
from ludus.config.registry import register
from ludus.data.batches.splits import Splits, split_rows
from ludus.data.sources._texts import PadBatch, TokenizedTexts, open_rows, open_tokenizer


@register("dataset", "huggingface")
class HuggingFaceTexts:
    """Rows of text with a label each, or texts to continue; a row is tokenized on demand."""

    class Config(StrictConfig):
        """The location of the texts, their split, and their tokenization."""

        kind: Literal["huggingface"]
        """Texts of a local file or folder, as dict batches for transformers models."""
        path: str
        """The examples: a folder that datasets' save_to_disk wrote, or a .parquet, .json(l) or .csv file."""
        validation_path: str | None
        """Such a folder or file with the validation examples; null takes a fraction of those at path."""
        test_path: str | None
        """Such a folder or file with the test examples; null takes a fraction of those at path."""
        validation_fraction: Fraction
        """The fraction of the examples at path kept for validation."""
        test_fraction: Fraction
        """The fraction of the examples at path kept for the final test."""
        task: Literal["classification", "causal_lm"]
        """The target: the label of each text, or each next token (causal language modelling)."""
        text: Annotated[list[str], Field(min_length=1, max_length=2)]
        """The column of the texts; two columns are a pair of texts, joined as the tokenizer does it."""
        label: str | None
        """The column of the labels, integers from 0 (or numbers to predict); null for causal_lm."""
        tokenizer: str
        """A local folder with the tokenizer, as save_pretrained wrote it."""
        max_length: Positive
        """The maximum number of tokens of a text; longer ones are truncated."""
        padding: Literal["longest", "max_length"]
        """Pad each batch to its longest text, or all to max_length."""

        def problems(self) -> Iterator[str]:
            """Yield the problems that only a combination of keys shows."""
            for role in ("validation", "test"):
                if getattr(self, f"{role}_path") is not None and getattr(self, f"{role}_fraction"):
                    yield f"'{role}_path' names the examples, so '{role}_fraction' must be 0"
            if self.task == "classification" and self.label is None:
                yield "'task' is classification, and 'label' is null; name the column of the labels"
            if self.task == "causal_lm" and self.label is not None:
                yield "'task' is causal_lm, whose targets are the tokens themselves; set 'label' to null"
            if self.task == "causal_lm" and len(self.text) > 1:
                yield "'task' is causal_lm, which takes one column of texts; name one in 'text'"

    @staticmethod
    def code_modules(config: Config) -> list[str]:
        """Return the libraries whose versions affect the tokens of a text."""
        return ["datasets", "tokenizers", "transformers"]

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the texts, split by the generator; rows in Arrow format stay on the disk."""
        config = self._config
        tokenizer = open_tokenizer(config.tokenizer)
        collate = PadBatch(
            tokenizer, padding=config.padding, max_length=config.max_length, task=config.task
        )

        def texts(key: str, path: str) -> TokenizedTexts:
            rows = open_rows(path, key=key, columns=[*config.text, *self._labels()])
            return TokenizedTexts(
                rows, collate, text=config.text, label=config.label, max_length=config.max_length
            )

        whole = texts("data.path", config.path)
        fractions = [config.validation_fraction, config.test_fraction]
        pieces = split_rows(len(whole), fractions, generator)
        parts: dict[str, TokenizedTexts | None] = {}
        for role, rows in zip(("validation", "test"), pieces, strict=False):
            path: Any = getattr(config, f"{role}_path")
            own = whole.only(rows.tolist()) if len(rows) else None
            parts[role] = own if path is None else texts(f"data.{role}_path", path)
        train = whole.only(pieces[-1].tolist()) if any(fractions) else whole
        return Splits("huggingface", "classification", train, parts["validation"], parts["test"])

    def _labels(self) -> list[str]:
        return [] if self._config.label is None else [self._config.label]
