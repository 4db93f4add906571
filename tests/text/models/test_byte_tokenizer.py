"""Each byte is a token, and what a user types is never a special one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies

from ludus.core.errors import LudusError
from ludus.text.chat import ChatMessage
from ludus.text.models import byte_tokenizer as bytes_
from ludus.text.models.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()


@settings(max_examples=100, deadline=None, database=None)
@given(strategies.text())
def test_decoding_undoes_encoding(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text.encode("utf-8", "replace").decode()


def test_a_conversation_is_the_bytes_of_its_messages_between_special_tokens() -> None:
    messages = [ChatMessage("user", "hü"), ChatMessage("assistant", "a")]
    expected = [256, 258, 104, 0xC3, 0xBC, 260, 259, 97, 260, 259]
    assert TOKENIZER.encode_chat(messages, add_generation_prompt=True) == expected
    assert TOKENIZER.encode_chat(messages, add_generation_prompt=False) == expected[:-1]


def test_the_assistants_text_and_its_end_are_learned_and_nothing_else() -> None:
    messages = [
        ChatMessage(role, "ab") for role in ("system", "user", "assistant", "user", "assistant")
    ]  # type: ignore[arg-type]
    tokens, mask = TOKENIZER.encode_with_mask(messages)
    assert tokens == TOKENIZER.encode_chat(messages, add_generation_prompt=False)
    learned = [token for token, is_learned in zip(tokens, mask, strict=True) if is_learned]
    assert learned == [97, 98, bytes_.END_OF_MESSAGE] * 2


@pytest.mark.parametrize("name", bytes_.SPECIAL)
def test_the_name_of_a_special_token_in_a_message_is_text(name: str) -> None:
    tokens = TOKENIZER.encode_chat([ChatMessage("user", name)], add_generation_prompt=False)
    assert tokens[2:-1] == list(name.encode())


def test_special_tokens_have_no_text_and_broken_utf8_is_replaced() -> None:
    assert TOKENIZER.decode([256, 104, 0xC3, 105, 260]) == "h\ufffdi"
    assert TOKENIZER.token_bytes(260) == b""
    assert TOKENIZER.token_text(260) == "<|end_of_message|>"
    assert TOKENIZER.token_text(0xC3) == "\\xc3"


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(LudusError, match="'tool', which is none of system, user, assistant"):
        TOKENIZER.encode_chat([ChatMessage("tool", "x")], add_generation_prompt=True)  # type: ignore[arg-type]
