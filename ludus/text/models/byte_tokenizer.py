"""A tokenizer without training: each byte of UTF-8 is a token, and eight special tokens mark messages.

A conversation is: bos, then for each message its role, its bytes and end_of_message.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ludus.core.errors import LudusError
from ludus.store.files import write_durably
from ludus.store.strict_json import dump_json
from ludus.text.chat import ChatMessage

SPECIAL = (
    "<|bos|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end_of_message|>",
    "<|pad|>",
    "<|reserved_0|>",
    "<|reserved_1|>",
)
NUM_BYTES = 256
BOS, SYSTEM, USER, ASSISTANT, END_OF_MESSAGE, PAD = range(NUM_BYTES, NUM_BYTES + 6)
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
MARK = "ludus_bytes"
"""The value of the key `ludus_tokenizer` in tokenizer_config.json."""
CHAT_TEMPLATE = (
    "{{ '<|bos|>' }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end_of_message|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The same conversation for transformers, where the name of a special token in a text is parsed."""


class ByteTokenizer:
    """Encodes text as its UTF-8 bytes; it needs no file."""

    bos = BOS
    vocab_size = NUM_BYTES + len(SPECIAL)
    end_of_message = END_OF_MESSAGE
    ends = (END_OF_MESSAGE,)
    pad = PAD

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        return list(_utf8(text))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of the bytes among the tokens."""
        return bytes(token for token in tokens if token < NUM_BYTES).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the byte of a token; none for a special token."""
        return bytes((token,)) if token < NUM_BYTES else b""

    def token_text(self, token: int) -> str:
        """Return the character of an ASCII byte, the byte as \\xNN, or the name of a special token."""
        if token >= NUM_BYTES:
            return SPECIAL[token - NUM_BYTES]
        return chr(token) if token < 128 else f"\\x{token:02x}"

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the tokens of a conversation."""
        tokens = [BOS]
        for message in messages:
            tokens.append(_role(message.role))
            tokens += _utf8(message.content)
            tokens.append(END_OF_MESSAGE)
        return [*tokens, ASSISTANT] if add_generation_prompt else tokens

    def encode_with_mask(self, messages: Sequence[ChatMessage]) -> tuple[list[int], list[bool]]:
        """Return the tokens of a conversation, and which of them are the assistant's to learn."""
        tokens, mask = [BOS], [False]
        for message in messages:
            content = _utf8(message.content)
            tokens += [_role(message.role), *content, END_OF_MESSAGE]
            mask += [False, *[message.role == "assistant"] * (len(content) + 1)]
        return tokens, mask

    def save(self, directory: Path) -> None:
        """Write the files with which transformers makes the same tokens."""
        write_durably(directory / "tokenizer.json", [dump_json(_tokenizer_json())])
        write_durably(directory / "tokenizer_config.json", [dump_json(_tokenizer_config())])


def _utf8(text: str) -> bytes:
    # A lone surrogate, which JSON can bring, has no UTF-8.
    return text.encode("utf-8", "replace")


def _role(role: str) -> int:
    if role not in ROLES:
        raise LudusError(f"a message has the role '{role}', which is none of {', '.join(ROLES)}")
    return ROLES[role]


def byte_alphabet() -> list[str]:
    """Return the printable character that stands for each byte in byte-level BPE files."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(NUM_BYTES) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters |= {byte: chr(NUM_BYTES + index) for index, byte in enumerate(others)}
    return [characters[byte] for byte in range(NUM_BYTES)]


def _tokenizer_json() -> dict[str, object]:
    """Return tokenizer.json: byte-level BPE without a merge."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    names = {name: NUM_BYTES + index for index, name in enumerate(SPECIAL)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token, "content": name, **flags, "special": True}
            for name, token in names.items()
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab | names,
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "ludus_tokenizer": MARK,
        "bos_token": SPECIAL[BOS - NUM_BYTES],
        "eos_token": SPECIAL[END_OF_MESSAGE - NUM_BYTES],
        "pad_token": SPECIAL[PAD - NUM_BYTES],
        "additional_special_tokens": [
            name
            for index, name in enumerate(SPECIAL, NUM_BYTES)
            if index not in (BOS, END_OF_MESSAGE, PAD)
        ],
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "chat_template": CHAT_TEMPLATE,
    }
