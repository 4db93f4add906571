"""Fine-tuning runs of a tenth of a second."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ludus

NEW_MODEL = {
    "kind": "byte_llama", "width": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2,
    "mlp_width": 16, "context": 64, "seed": 0, "embedding_std": 0.02,
}  # fmt: skip
DPO = {"kind": "dpo", "beta": 0.5, "nll_coef": 1.0}
QUIET = {
    "settings.display": "none", "settings.threads": 1, "settings.loggers": [], "settings.device": "cpu",
    "settings.checkpoint.every_seconds": 0.0,
}  # fmt: skip


def small_tuning(**changed: Any) -> Any:
    """Return the config of two epochs of four batches of 16 examples."""
    own = {
        "new_model": NEW_MODEL,
        "data": {"kind": "majority", "examples": 56, "validation_examples": 24},
        "batch_size": 16, "max_epochs": 2, "max_grad_norm": None, "log_every_opt_steps": 0,
        "evaluate_every_epochs": 1, "evaluation.keep": 0, **QUIET,
    }  # fmt: skip
    return ludus.example("text_tuning").replace(**{**own, **changed})


def chat(*contents: str, **more: Any) -> dict[str, Any]:
    """Return the line of a conversation that the user begins."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    return {"messages": turns, **more}


def jsonl(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Return lines as a file's bytes."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Write a file of lines and return its path."""
    path.write_bytes(jsonl(lines))
    return path


def of_lines(path: Path, validation: Path | None = None) -> dict[str, Any]:
    """Return the section `data` for a file."""
    found = None if validation is None else str(validation)
    return {"kind": "lines", "path": str(path), "validation_path": found}
