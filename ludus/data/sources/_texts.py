"""Texts in Arrow tables, tokenized row by row and padded batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ludus.config.optional import optional
from ludus.core.errors import ConfigError, nearest

_KEY = "data.kind huggingface"
_IGNORED = -100
"""The target that the losses of transformers and torch ignore."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    pad_token_id: int | None

    def __call__(self, *texts: str, truncation: bool, max_length: int) -> dict[str, list[int]]:
        """Return the token ids of a text, or of a pair."""

    def pad(self, rows: object, **options: object) -> dict[str, Tensor]:
        """Return rows padded to one length."""

    def get_vocab(self) -> dict[str, int]:
        """Return the id of every token."""


class Rows(Protocol):
    """An Arrow table of datasets."""

    data: Any

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> dict[str, Any]: ...
    def select(self, indices: Sequence[int], /) -> Rows:
        """Return some of the rows."""


class PadBatch:
    """Collates tokenized rows into a batch: token ids, attention mask and labels, as tensors by name."""

    def __init__(self, tokenizer: Tokenizer, *, padding: str, max_length: int, task: str) -> None:
        self.tokenizer, self.task = tokenizer, task
        self._padding, self._max_length = padding, max_length

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return the batch; a language model has no target at padding."""
        tokens = [{name: row[name] for name in row if name != "labels"} for row in rows]
        length = self._max_length if self._padding == "max_length" else None
        padded = self.tokenizer.pad(
            tokens, padding=self._padding, max_length=length, return_tensors="pt"
        )
        batch: dict[str, Tensor] = dict(padded)
        if self.task == "causal_lm":
            # By the mask and not by the token: many tokenizers pad with the end-of-text token.
            batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, _IGNORED)
        else:
            batch["labels"] = torch.tensor([row["labels"] for row in rows])
        return batch


class TokenizedTexts(Dataset[dict[str, Any]]):
    """Rows of an Arrow table as token ids, and a label if there is one."""

    name = "huggingface"

    def __init__(
        self,
        rows: Rows,
        collate: PadBatch,
        *,
        text: Sequence[str],
        label: str | None,
        max_length: int,
    ) -> None:
        self._rows, self.collate = rows, collate
        self._text, self._label, self._max_length = text, label, max_length
        _check_columns(rows, text, label)

    def only(self, indices: Sequence[int]) -> TokenizedTexts:
        """Return some of the rows, which are not copied."""
        part = TokenizedTexts.__new__(TokenizedTexts)
        vars(part).update(vars(self), _rows=self._rows.select(indices))
        return part

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self._rows[index]
        texts = [row[column] for column in self._text]
        tokens = self.collate.tokenizer(*texts, truncation=True, max_length=self._max_length)
        example = dict(tokens)
        if self._label is not None:
            example["labels"] = row[self._label]
        return example

    def check_network(self, network: nn.Module) -> None:
        """Raise ConfigError if the tokens or the labels do not fit this network."""
        tokenizer, key = self.collate.tokenizer, "data.tokenizer"
        owners = (part for part in network.modules() if hasattr(part, "get_input_embeddings"))
        own: Any = next(owners, None)
        if own is None:
            return
        embedding = own.get_input_embeddings()
        most, rows = max(tokenizer.get_vocab().values()), getattr(embedding, "num_embeddings", None)
        if rows is not None and most >= rows:
            raise ConfigError(
                f"'{key}' has {most + 1} tokens, and the embedding of the model {rows}; give the tokenizer"
                " that the model was trained with, or a vocab_size that holds them"
            )
        config = getattr(own, "config", None)
        if self.collate.task == "causal_lm" or config is None:
            return
        padding = getattr(config, "pad_token_id", None)
        if padding != tokenizer.pad_token_id:
            raise ConfigError(
                f"'{key}' pads with token {tokenizer.pad_token_id}, and the pad_token_id of the model is"
                f" {'null' if padding is None else padding}; give the tokenizer of the model, or set"
                " pad_token_id in the model's config"
            )
        self._check_labels(getattr(config, "num_labels", None))

    def _check_labels(self, number: int | None) -> None:
        compute = optional("pyarrow.compute", key=_KEY, extra="huggingface")
        column = self._rows.data.column(self._label)
        if number is None or str(column.type).startswith(("float", "double")):
            return
        bounds = compute.min_max(column).as_py()
        if number > 1 and not 0 <= bounds["min"] <= bounds["max"] < number:
            raise ConfigError(
                f"'data.label' {self._label} has values from {bounds['min']} to {bounds['max']}, and the"
                f" model has {number} classes, 0 to {number - 1}; set num_labels in the model's config"
            )


def open_tokenizer(path: str) -> Tokenizer:
    """Return the tokenizer in a local folder; raise ConfigError if it cannot pad."""
    transformers = optional("transformers", key=_KEY, extra="huggingface")
    if not Path(path).is_dir():
        raise ConfigError(
            f"'data.tokenizer' is {path}, which is no folder; save a tokenizer there with save_pretrained"
            " (nothing is downloaded)"
        )
    try:
        tokenizer: Tokenizer = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'data.tokenizer': {' '.join(str(error).split())[:300]}") from None
    if tokenizer.pad_token_id is None:
        raise ConfigError(
            f"'data.tokenizer' at {path} has no pad token; set tokenizer.pad_token (to tokenizer.eos_token,"
            " say) and save it again"
        )
    return tokenizer


def open_rows(path: str, *, key: str, columns: Sequence[str]) -> Rows:
    """Return the rows of a folder, memory-mapped, or of a file; raise ConfigError if there are none."""
    datasets = optional("datasets", key=_KEY, extra="huggingface")
    place = Path(path)
    if (place / "dataset_dict.json").is_file():
        parts = sorted(one.name for one in place.iterdir() if one.is_dir())
        raise ConfigError(
            f"'{key}' is {path}, which holds {', '.join(parts)}; name one of them: {place / parts[0]}"
        )
    try:
        if (place / "state.json").is_file():
            rows = datasets.load_from_disk(path, keep_in_memory=False)
        else:
            rows = datasets.Dataset(_table(place, key))
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{key}': {' '.join(str(error).split())[:300]}") from None
    for column in columns:
        if column not in rows.column_names:
            raise ConfigError(
                f"'{key}' is {path}, which has no column {column}.{nearest(column, rows.column_names)}"
            )
    if not len(rows):
        raise ConfigError(f"'{key}' is {path}, which has no rows")
    chosen: Rows = rows.select_columns([*columns])
    return chosen


def _table(file: Path, key: str) -> Any:
    """Return the Arrow table of a file, by its suffix."""
    readers = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
    if not file.is_file() or file.suffix not in readers:
        raise ConfigError(
            f"'{key}' is {file}, which is neither a folder that save_to_disk wrote nor a file that ends in"
            f" {', '.join(readers)}"
        )
    reader = optional(f"pyarrow.{readers[file.suffix]}", key=_KEY, extra="huggingface")
    if file.suffix == ".parquet":
        return reader.read_table(str(file), memory_map=True)
    return getattr(reader, f"read_{readers[file.suffix]}")(str(file))


def _check_columns(rows: Rows, text: Sequence[str], label: str | None) -> None:
    """Raise ConfigError for empty cells, and for labels that are not numbers."""
    for column in [*text, *([] if label is None else [label])]:
        if missing := rows.data.column(column).null_count:
            raise ConfigError(
                f"the column {column} has no value in {missing} rows; fill or drop them"
            )
    found = "int64" if label is None else str(rows.data.column(label).type)
    if not found.startswith(("int", "uint", "float", "double", "halffloat")):
        raise ConfigError(f"the column {label} of labels holds {found}; number the classes from 0")
