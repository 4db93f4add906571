"""Chat requests: each field is read, ignored or refused as the table says."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from openai.types.chat import completion_create_params

from ludus.text.chat import ChatMessage
from ludus.text.server import chat_request
from ludus.text.server.chat_request import FIELDS, ChatParameters, parse_chat
from ludus.text.server.errors import ApiError

ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


def parsed(**fields: Any) -> ChatParameters:
    return parse_chat(json.dumps(ASKED | fields).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parsed(**fields)
    assert caught.value.status == 400
    return caught.value


def test_absent_and_null_fields_have_the_defaults_of_openai() -> None:
    expected = ChatParameters("tiny", (ChatMessage("user", "Hi"),))
    assert parsed() == parsed(**dict.fromkeys(set(FIELDS) - set(ASKED))) == expected
    assert (expected.temperature, expected.top_p, expected.n, expected.seed) == (1, 1, 1, None)


def test_what_decides_the_samples_is_read() -> None:
    found = parsed(
        n=3, seed=-5, stop="x", temperature=0.5, top_p=0.9, max_tokens=7, logprobs=True, top_logprobs=2,
        presence_penalty=1, frequency_penalty=-1, logit_bias={"65": -100}, return_token_ids=True,
    )  # fmt: skip
    assert (found.n, found.seed, found.stop, found.max_tokens) == (3, -5, ("x",), 7)
    assert (found.temperature, found.top_p, found.top_logprobs) == (0.5, 0.9, 2)
    assert (found.presence_penalty, found.frequency_penalty) == (1, -1)
    assert found.logit_bias == {65: -100}
    assert found.logprobs
    assert found.return_token_ids


def test_a_message_may_come_in_parts_and_from_the_developer() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = parsed(messages=[{"role": "developer", "content": parts, "name": "me"}])
    assert found.messages == (ChatMessage("system", "ab"),)


def test_every_field_of_openai_is_known_and_in_the_table() -> None:
    base = typing.get_type_hints(completion_create_params.CompletionCreateParamsBase)
    assert {*base, "stream"} <= FIELDS.keys()
    table = chat_request.__doc__ or ""
    assert [name for name in FIELDS if name not in table] == []


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"n": 0}, "n", "expected a value >= 1, but got 0"),
        ({"n": 129}, "n", "expected a value <= 128"),
        ({"n": True}, "n", "expected an integer, but got True"),
        ({"n": "2"}, "n", "expected an integer, but got a string"),
        ({"seed": 1.5}, "seed", "expected an integer"),
        ({"seed": 2**63}, "seed", "expected a value <="),
        ({"temperature": 2.1}, "temperature", "expected a value <= 2"),
        ({"top_p": -0.1}, "top_p", "expected a value >= 0"),
        ({"stop": ""}, "stop", "none of them empty"),
        ({"stop": ["a"] * 17}, "stop", "up to 16"),
        ({"max_tokens": 0}, "max_tokens", "expected a value >= 1"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", "at the same time"),
        ({"top_logprobs": 2}, "top_logprobs", "only if 'logprobs' is true"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "'a' is no token id"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "expected a value <= 100"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "when 'stream' is enabled"),
        ({"stream": True, "stream_options": {"a": 1}}, "stream_options", "include_usage"),
        ({"tools": [{}]}, "tools", "not supported by this server except as []"),
        ({"store": True}, "store", "except as False"),
        ({"store": 0}, "store", "except as False"),
        ({"response_format": {"type": "json_object"}}, "response_format", "{'type': 'text'}"),
        ({"audio": {}}, "audio", "except as null"),
        ({"modle": "x"}, "modle", "Unrecognized request argument supplied: modle"),
        ({"messages": []}, "messages", "[] is too short - 'messages'"),
        ({"messages": "Hi"}, "messages", "expected an array, but got a string"),
        ({"messages": ["Hi"]}, "messages[0]", "expected an object"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role", "supported values"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "expected a string"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "text parts"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
            "parts of type text",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
            "messages[0].tool_calls",
            "Unsupported field",
        ),
        ({"model": ""}, "model", "not empty"),
        ({"model": None}, "model", "Missing required parameter: 'model'."),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Any], param: str, said: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert said in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b'{"model": "\\ud800"}', b"\xff"]
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_chat(body)
    assert caught.value.status == 400
    assert "body" in str(caught.value)
