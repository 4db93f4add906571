"""Causal language models of transformers, and LoRA adapters over them, from local directories alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ludus.config.optional import optional
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.transformers_models import quiet
from ludus.store.files import sync_file
from ludus.text.chat import ChatMessage
from ludus.text.models.byte_tokenizer import byte_alphabet
from ludus.text.models.language_model import ADAPTER, LanguageModel, check_directory, read_json

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_NO_CONTEXT = 2048
"""The context of a model whose config names none."""


class HuggingFaceNetwork(nn.Module):
    """A causal language model of transformers, called with tokens and lengths."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Return the logits of the token after each; positions past a row's length have no meaning."""
        mask = None
        if lengths_B is not None:
            steps = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
            mask = (steps < lengths_B[:, None]).long()
        found = self.network(input_ids=tokens_BT, attention_mask=mask, use_cache=False)
        logits: Tensor = found.logits
        return logits


class PreTrainedTokenizer(Protocol):
    """A tokenizer of transformers, as far as it is used."""

    eos_token_id: int | None
    pad_token_id: int | None
    all_special_ids: list[int]
    all_special_tokens: list[str]
    chat_template: str | None

    def __len__(self) -> int: ...
    def __call__(self, text: str, **options: bool) -> dict[str, list[int]]: ...
    def decode(self, tokens: list[int], **options: bool) -> str: ...
    def convert_ids_to_tokens(self, token: int) -> str | None: ...
    def apply_chat_template(self, messages: list[dict[str, str]], **options: bool) -> str: ...
    def save_pretrained(self, directory: Path) -> object: ...


class HuggingFaceTokenizer:
    """A tokenizer of transformers with a chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizer, ends: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        own = tokenizer.eos_token_id
        self.ends = tuple(dict.fromkeys([*([] if own is None else [int(own)]), *ends]))
        if not self.ends:
            raise ConfigError("the tokenizer has no eos_token; set one in tokenizer_config.json")
        self.end_of_message = self.ends[0]
        self.pad = self.end_of_message if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.vocab_size = len(tokenizer)
        self._special = frozenset(tokenizer.all_special_ids)
        self._special_texts = tuple(tokenizer.all_special_tokens)
        self._bytes = {character: byte for byte, character in enumerate(byte_alphabet())}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._is_byte_level = "ByteLevel" in repr(getattr(backend, "decoder", ""))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, none of them special."""
        found = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return list(found["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        text = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for; none for a special token."""
        if token in self._special:
            return b""
        piece = self.tokenizer.convert_ids_to_tokens(token)
        if piece is None:
            return b""
        if self._is_byte_level and all(character in self._bytes for character in piece):
            return bytes(self._bytes[character] for character in piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes((int(piece[3:5], 16),))
        return str(piece).replace("▁", " ").encode()

    def token_text(self, token: int) -> str:
        """Return the text of a token, or the name of a special one."""
        if token in self._special:
            return str(self.tokenizer.convert_ids_to_tokens(token))
        return self.token_bytes(token).decode("utf-8", "replace")

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the tokens of a conversation by the tokenizer's own chat template."""
        if not self.tokenizer.chat_template:
            raise LudusError(
                "the model's tokenizer has no chat template, so it cannot take messages; add chat_template"
                " to tokenizer_config.json, or take a chat model"
            )
        is_plain = not any(text in one.content for one in messages for text in self._special_texts)
        texts = [one.content if is_plain else f"\x02{i}\x03" for i, one in enumerate(messages)]
        given = [
            {"role": one.role, "content": text} for one, text in zip(messages, texts, strict=True)
        ]
        try:
            rendered = self.tokenizer.apply_chat_template(
                given, add_generation_prompt=add_generation_prompt, tokenize=False
            )
        except Exception as error:
            # A template is a program of the model's author; it refuses roles by raising anything.
            raise LudusError(f"the model's chat template refuses the messages: {error}") from None
        if is_plain:
            return self._encode_template(rendered)
        return self._encode_apart(rendered, messages)

    def _encode_template(self, text: str) -> list[int]:
        found = self.tokenizer(text, add_special_tokens=False)
        return list(found["input_ids"])

    def _encode_apart(self, rendered: str, messages: Sequence[ChatMessage]) -> list[int]:
        """Encode the template with its special tokens, and the messages, which name some, without."""
        tokens: list[int] = []
        for index, message in enumerate(messages):
            before, found, rendered = rendered.partition(f"\x02{index}\x03")
            if not found:
                raise LudusError(f"the model's chat template leaves out message {index + 1}")
            tokens += self._encode_template(before) + self.encode(message.content)
        return tokens + self._encode_template(rendered)

    def encode_with_mask(self, messages: Sequence[ChatMessage]) -> tuple[list[int], list[bool]]:
        """Return the tokens of a conversation, and which of them are the assistant's to learn."""
        tokens = self.encode_chat(messages, add_generation_prompt=False)
        mask = [False] * len(tokens)
        for index, message in enumerate(messages):
            if message.role != "assistant":
                continue
            opening = self.encode_chat(messages[:index], add_generation_prompt=True)
            closed = self.encode_chat(messages[: index + 1], add_generation_prompt=False)
            is_prefix = tokens[: len(opening)] == opening and tokens[: len(closed)] == closed
            if not is_prefix:
                raise LudusError(
                    "the model's chat template writes a message differently once others follow, so what the"
                    " assistant said cannot be told apart; take a template that only appends"
                )
            end = len(closed)
            while end > len(opening) and tokens[end - 1] not in self.ends:
                end -= 1
            end = end if end > len(opening) else len(closed)
            mask[len(opening) : end] = [True] * (end - len(opening))
        return tokens, mask

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files."""
        self.tokenizer.save_pretrained(directory)


def load_huggingface(
    directory: Path, *, name: str, device: str | torch.device, dtype: torch.dtype | None
) -> LanguageModel:
    """Return the model of a directory that transformers reads, or of a LoRA adapter's."""
    transformers = optional("transformers", key=f"the model {directory}", extra="huggingface")
    base = directory
    if (directory / ADAPTER).is_file() and not (directory / "config.json").is_file():
        base = _base_of(directory)
    with _as_one_sentence(directory), quiet(transformers):
        network = transformers.AutoModelForCausalLM.from_pretrained(
            base, **_LOCAL, use_safetensors=True, dtype=dtype or torch.float32
        )
        own = directory if (directory / "tokenizer_config.json").is_file() else base
        tokenizer = transformers.AutoTokenizer.from_pretrained(own, **_LOCAL)
    if base is not directory:
        peft = optional("peft", key=f"the adapter {directory}", extra="huggingface")
        with _as_one_sentence(directory):
            network = peft.PeftModel.from_pretrained(network, str(directory), is_trainable=True)
    ends = network.generation_config.eos_token_id
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    context = getattr(network.config, "max_position_embeddings", None)
    module = HuggingFaceNetwork(network)
    module.to(device)
    module.eval()
    return LanguageModel(
        name,
        directory,
        module,
        HuggingFaceTokenizer(tokenizer, ends),
        int(context or getattr(network.config, "n_positions", None) or _NO_CONTEXT),
    )


def write_huggingface(model: LanguageModel, folder: Path) -> None:
    """Write a model of transformers, or the adapter over one, into an empty directory."""
    assert isinstance(model.module, HuggingFaceNetwork)
    network: Any = model.module.network
    with _as_one_sentence(folder):
        network.save_pretrained(folder)
        model.tokenizer.save(folder)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sync_file(path)


def _base_of(directory: Path) -> Path:
    """Return the base of an adapter: an absolute directory, or one relative to the adapter's."""
    named = str(read_json(directory / ADAPTER).get("base_model_name_or_path") or "")
    base = directory / named
    if not named or not base.is_dir():
        raise ConfigError(
            f"{directory} is an adapter over '{named}', which is not a directory here; write the directory of"
            f" its base model under base_model_name_or_path in {ADAPTER} (nothing is downloaded)"
        )
    check_directory(base)
    return base


@contextlib.contextmanager
def _as_one_sentence(directory: Path) -> Iterator[None]:
    """Turn errors of transformers and PEFT about a directory into one sentence."""
    try:
        yield
    except LudusError:
        raise
    except (
        OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError, ImportError, SafetensorError
    ) as error:  # fmt: skip
        said = " ".join(str(error).split())[:300]
        raise ConfigError(f"{directory} cannot be loaded as a language model: {said}") from None
