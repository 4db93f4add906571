"""Tokenizer: how the text of messages becomes tokens, and tokens text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ludus.text.chat import ChatMessage


class ChatTokenizer(Protocol):
    """Encodes text and conversations. Text of a message never becomes a special token."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""

    @property
    def end_of_message(self) -> int:
        """The token that ends a message."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a sample, `end_of_message` first."""

    @property
    def pad(self) -> int:
        """The token that fills a batch up."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; bytes that are no UTF-8 are replaced, special tokens are left out."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for; none for a special token."""

    def token_text(self, token: int) -> str:
        """Return a token for people to read: its text, or the name of a special token."""

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the tokens of a conversation, with the opening of the assistant's answer if asked for."""

    def encode_with_mask(self, messages: Sequence[ChatMessage]) -> tuple[list[int], list[bool]]:
        """Return the tokens of a conversation, and which of them are the assistant's to learn.

        Those are the tokens of its messages and the end-of-message token of each.
        """

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files into a directory, durably."""
