"""Tiny models, a tokenizer and rows of text on the disk, as people have them after save_pretrained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ludus
from tests.supervised.conftest import QUIET

WORDS = ["good", "fine", "great", "bad", "poor", "dull", "film", "book", "a", "the"]
BERT: dict[str, Any] = {
    "model_type": "bert", "vocab_size": 12, "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 8, "num_labels": 2,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 12, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
LORA: dict[str, Any] = {
    "kind": "lora", "r": 2, "alpha": 4.0, "dropout": 0.1, "target_modules": ["query", "value"],
    "modules_to_save": ["classifier"], "bias": "none",
}  # fmt: skip
CLASSIFIER: dict[str, Any] = {
    "kind": "huggingface", "auto_class": "AutoModelForSequenceClassification", "path": None,
    "config": BERT, "adapter": None,
}  # fmt: skip
LANGUAGE_MODEL = {**CLASSIFIER, "auto_class": "AutoModelForCausalLM", "config": GPT2}


def rows(count: int = 24) -> list[dict[str, Any]]:
    """Return texts of different lengths, the label of which is in their second word."""
    return [
        {
            "text": " ".join(["the", WORDS[i % 6], "film", *["a", "book"][: i % 3]]),
            "other": WORDS[i % 10],
            "label": int(i % 6 < 3),
        }
        for i in range(count)
    ]


def write_tokenizer(folder: Path, *, pad: str | None = "[PAD]") -> None:
    """Write a tokenizer of one token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, unk_token="[UNK]"
    ).save_pretrained(folder)


def write_all(folder: Path) -> None:
    """Write `tokenizer`, `bert` (a base) and the rows in every format."""
    import torch
    from datasets import Dataset, DatasetDict, disable_progress_bars
    from transformers import AutoConfig, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    disable_progress_bars()
    write_tokenizer(folder / "tokenizer")
    torch.manual_seed(0)
    values = {name: value for name, value in BERT.items() if name != "model_type"}
    config = AutoConfig.for_model("bert", **values)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder / "bert")
    table = Dataset.from_list(rows())
    DatasetDict({"train": table, "test": table.select(range(6))}).save_to_disk(folder / "rows")
    table.to_parquet(folder / "rows.parquet")
    table.to_csv(folder / "rows.csv")
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows())))


def texts(folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the section of the rows for classification."""
    return {
        "kind": "huggingface", "path": str(folder / "rows" / "train"), "validation_path": None,
        "test_path": None, "validation_fraction": 0.25, "test_fraction": 0.0,
        "task": "classification", "text": ["text"], "label": "label",
        "tokenizer": str(folder / "tokenizer"), "max_length": 8, "padding": "longest", **changed,
    }  # fmt: skip


def language(folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the section of the rows for language modelling."""
    return texts(folder, **{"task": "causal_lm", "label": None, **changed})


def small(data: Any, model: Any, **changed: Any) -> Any:
    """Return the config of a run of a few steps."""
    own: dict[str, Any] = {
        "data": data, "model": model, "loss": "from_model", "batch_size": 4, "max_epochs": 2,
        "engine": "eager", "ema_decay": None, "evaluation.patience": None, "evaluation.keep": 0,
        "log_every_opt_steps": 1, "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
        "optimizer.learning_rate": 0.01, **QUIET,
    }  # fmt: skip
    return ludus.example("supervised").replace(**{**own, **changed})
