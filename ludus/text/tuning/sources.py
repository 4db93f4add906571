"""Load the training and validation examples of a fine-tuning run as tokens."""

from __future__ import annotations

from pathlib import Path

from ludus.core.errors import ConfigError
from ludus.text.models.language_model import LanguageModel
from ludus.text.tuning.config import LinesData, TextTuningConfig
from ludus.text.tuning.lines import read_lines
from ludus.text.tuning.majority import majority_lines
from ludus.text.tuning.tokens import TokenTable, tokenise


def load_tables(config: TextTuningConfig, model: LanguageModel) -> dict[str, TokenTable]:
    """Return the tokens of the examples by role: train, and validation if there are any.

    Raise ConfigError, with the number of each bad line, if a file cannot be learned from.
    """
    return {
        role: tokenise(
            read_lines(data, config.method.kind, source=source),
            model.tokenizer,
            context=model.context,
            source=source,
        )
        for role, (data, source) in _files(config).items()
    }


def _files(config: TextTuningConfig) -> dict[str, tuple[bytes, str]]:
    """Return the lines of each role, and the name of their file."""
    data = config.data
    if isinstance(data, LinesData):
        found = {"train": (read_file(data.path, "'data.path'"), data.path)}
        if data.validation_path is not None:
            path = data.validation_path
            found["validation"] = (read_file(path, "'data.validation_path'"), path)
        return found
    method, seed = config.method.kind, config.seed
    counts = {"train": (0, data.examples), "validation": (data.examples, data.validation_examples)}
    return {
        role: (majority_lines(first, count, method=method, seed=seed), "the majority task")
        for role, (first, count) in counts.items()
        if count
    }


def read_file(path: str | Path, key: str) -> bytes:
    """Return the bytes of a file; `key` names what has it in the message of the ConfigError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{key} is {path}, which cannot be read: {error.strerror}") from None
