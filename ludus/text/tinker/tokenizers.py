"""Read a tokenizer from a directory on this machine."""

from __future__ import annotations

from pathlib import Path

from ludus.config.optional import optional
from ludus.core.errors import ConfigError
from ludus.text.models.byte_tokenizer import MARK, ByteTokenizer
from ludus.text.models.language_model import TOKENIZER, read_json
from ludus.text.models.tokenizer import ChatTokenizer


def read_tokenizer(directory: str | Path) -> ChatTokenizer:
    """Return the tokenizer of a directory: ludus's own, or one of transformers; nothing is downloaded."""
    path = Path(directory)
    if not (path / TOKENIZER).is_file():
        raise ConfigError(
            f"{path} has no {TOKENIZER} on this machine, so no text can be made of tokens"
        )
    if read_json(path / TOKENIZER).get("ludus_tokenizer") == MARK:
        return ByteTokenizer()
    from ludus.text.models.huggingface import HuggingFaceTokenizer

    transformers = optional("transformers", key=f"the tokenizer {path}", extra="huggingface")
    found = transformers.AutoTokenizer.from_pretrained(
        path, local_files_only=True, trust_remote_code=False
    )
    ends = _ends(path / "generation_config.json")
    return HuggingFaceTokenizer(found, ends)


def _ends(path: Path) -> list[int]:
    """Return the tokens that end a sample, as far as the model's directory names them."""
    found = read_json(path).get("eos_token_id") if path.is_file() else None
    return [int(one) for one in (found if isinstance(found, list) else [found]) if one is not None]
