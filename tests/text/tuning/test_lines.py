"""Lines of a training file are read in the formats that people have, and refused by their number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ludus.core.errors import ConfigError
from ludus.text.chat import ChatMessage
from ludus.text.tuning.lines import (
    BadLinesError,
    Conversation,
    PlainText,
    TrainingExample,
    read_lines,
)
from tests.text.tuning.small import chat, jsonl

USER, ANSWER = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
WRONG = {"role": "assistant", "content": "5"}
ASKED = ChatMessage("user", "2+2?")


def supervised(*lines: dict[str, Any]) -> list[TrainingExample]:
    return read_lines(jsonl(lines), "supervised", source="train.jsonl")


def preferences(*lines: dict[str, Any]) -> list[TrainingExample]:
    return read_lines(jsonl(lines), "dpo", source="train.jsonl")


def refused(data: bytes, method: Any = "supervised") -> str:
    with pytest.raises(ConfigError) as caught:
        read_lines(data, method, source="train.jsonl")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_conversation_of_openai_is_read_with_all_answers_learned() -> None:
    (example,) = supervised(chat("a", "b", "c", "d"))
    (sample,) = example.samples
    assert isinstance(sample, Conversation)
    assert sample.messages[1] == ChatMessage("assistant", "b")
    assert sample.is_trained == (True, True)


def test_an_assistant_message_of_weight_0_is_context() -> None:
    line = chat("a", "b", "c", "d")
    line["messages"][1]["weight"] = 0
    line["messages"][3]["weight"] = 1
    (sample,) = supervised(line)[0].samples
    assert isinstance(sample, Conversation)
    assert sample.is_trained == (False, True)


def test_content_in_parts_and_the_role_developer_are_understood() -> None:
    parts = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    line = {
        "messages": [{"role": "developer", "content": "x"}, {"role": "assistant", "content": parts}]
    }
    (sample,) = supervised(line)[0].samples
    assert isinstance(sample, Conversation)
    assert sample.messages == (ChatMessage("system", "x"), ChatMessage("assistant", "42"))


def test_the_three_supervised_formats_of_trl() -> None:
    """Language modelling and prompt-completion, as text and as messages."""
    found = supervised(
        {"text": "The sky is blue."},
        {"prompt": "The sky is", "completion": " blue."},
        {"prompt": [USER], "completion": [ANSWER], "id": 7},
    )
    assert [example.samples[0] for example in found] == [
        PlainText("", "The sky is blue."),
        PlainText("The sky is", " blue."),
        Conversation((ASKED, ChatMessage("assistant", "4")), (True,)),
    ]


def test_an_answer_within_a_prompt_is_context() -> None:
    line = {"prompt": [USER, WRONG, USER], "completion": [ANSWER]}
    (sample,) = supervised(line)[0].samples
    assert isinstance(sample, Conversation)
    assert sample.is_trained == (False, True)


PAIR = (
    Conversation((ASKED, ChatMessage("assistant", "4")), (True,)),
    Conversation((ASKED, ChatMessage("assistant", "5")), (True,)),
)


@pytest.mark.parametrize(
    "line",
    [
        {
            "input": {"messages": [USER], "tools": [], "parallel_tool_calls": False},
            "preferred_output": [ANSWER],
            "non_preferred_output": [WRONG],
        },
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [WRONG]},
        {"chosen": [USER, ANSWER], "rejected": [USER, WRONG]},
    ],
)
def test_the_preference_formats_of_openai_and_trl_mean_the_same(line: dict[str, Any]) -> None:
    (example,) = preferences(line)
    assert example.samples == PAIR


def test_preferences_between_texts_with_a_prompt_or_without() -> None:
    explicit = {"prompt": "The sky is", "chosen": " blue.", "rejected": " green."}
    implicit = {"chosen": "The sky is blue.", "rejected": "The sky is green."}
    expected = (PlainText("The sky is", " blue."), PlainText("The sky is", " green."))
    assert [one.samples for one in preferences(explicit, implicit)] == [expected, expected]


@pytest.mark.slow
def test_an_implicit_prompt_is_the_one_that_trl_extracts() -> None:
    from trl.data_utils import extract_prompt  # type: ignore[import-untyped, unused-ignore]

    pairs = [("ab cd", "ab ce"), ("ab cd", "ab xd"), ("x", "y"), ("a b c", "a d c")]
    lines = [{"chosen": one, "rejected": other} for one, other in pairs]
    for line, example in zip(lines, preferences(*lines), strict=True):
        theirs = extract_prompt(line)
        expected = [PlainText(theirs["prompt"], theirs[key]) for key in ("chosen", "rejected")]
        assert list(example.samples) == expected


def test_empty_lines_are_skipped_but_counted() -> None:
    data = b"\xef\xbb\xbf\n" + jsonl([chat("a", "b")]) + b"  \r\n" + jsonl([chat("c", "d")])
    assert [e.line for e in read_lines(data, "supervised", source="x")] == [2, 4]


GOOD = json.dumps(chat("a", "b")).encode()


@pytest.mark.covers("002-D2")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"messages": [', "is not JSON"),
        (b"[1, 2]", "is a list, not an object"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"messages": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"{}", "has no 'messages'"),
        (b'{"messages": []}', "has no messages: 'messages' is empty"),
        (b'{"messages": "hello"}', "has 'messages' as text, not a list"),
        (b'{"messages": ["hello"]}', "a message in 'messages' that is text, not an object"),
        (jsonl([{"messages": [ANSWER, USER]}]).strip(), "ends with a message of the user"),
        (jsonl([{"messages": [{"role": "tool", "content": "x"}, ANSWER]}]).strip(), '"tool"; roles are'),
        (jsonl([{"messages": [{"content": "x"}, ANSWER]}]).strip(), "role null"),
        (jsonl([{"messages": [{"role": "assistant"}]}]).strip(), "content is null, not text"),
        (jsonl([{"messages": [{**ANSWER, "tool_calls": [1]}]}]).strip(), "'tool_calls'"),
        (jsonl([{"messages": [{**ANSWER, "weight": 0}]}]).strip(), "teaches nothing"),
        (jsonl([{"messages": [{**ANSWER, "weight": 0.5}]}]).strip(), "weight 0.5"),
        (jsonl([{"messages": [{**USER, "weight": 1}, ANSWER]}]).strip(), "message of the user with weight"),
        (jsonl([{"messages": [ANSWER], "tools": [{}]}]).strip(), "has 'tools'"),
        (
            jsonl([{"messages": [{**USER, "content": [{"type": "image_url"}]}, ANSWER]}]).strip(),
            "a part that is not text",
        ),
        (b'{"messages": [{"role": "assistant", "content": "\\ud800"}]}', "half a surrogate pair"),
        (b'{"prompt": "x", "completion": [1]}', "'prompt' as text and 'completion' as a list"),
        (b'{"prompt": "x", "completion": 4}', "'completion' as a number"),
        (b'{"chosen": "a", "rejected": "b"}', "use the method dpo"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_by_its_number(line: bytes, told: str) -> None:
    message = refused(GOOD + b"\n\n" + line + b"\n" + GOOD)
    assert message.startswith("train.jsonl: line 3 ")
    assert told in message


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (chat("a", "b"), "it is an example for the method supervised"),
        ({"chosen": "a", "rejected": ["b"]}, "'chosen' as text and 'rejected' as a list"),
        ({"prompt": "x", "chosen": "a"}, "has no 'rejected'"),
        ({"input": {}, "preferred_output": [], "non_preferred_output": []}, "without 'messages'"),
        (
            {"input": {"messages": [USER]}, "preferred_output": [ANSWER], "non_preferred_output": []},
            "'non_preferred_output' is empty",
        ),
        (
            {"input": {"messages": [USER]}, "preferred_output": [USER], "non_preferred_output": [WRONG]},
            "ends with a message of the user",
        ),
    ],
)  # fmt: skip
def test_a_bad_preference_is_refused(line: dict[str, Any], told: str) -> None:
    assert told in refused(jsonl([line]), "dpo")


def test_bytes_that_are_no_utf_8_are_refused_with_their_line() -> None:
    message = refused(GOOD + b"\n" + GOOD + b"\n" + b'{"messages": "\xff"}')
    assert "line 3 is not UTF-8 (byte 0xff)" in message


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_a_file_without_examples_is_refused(data: bytes) -> None:
    assert "train.jsonl has no examples" in refused(data)


def test_many_bad_lines_are_told_in_one_sentence() -> None:
    with pytest.raises(BadLinesError) as caught:
        read_lines(b"{}\n" * 7, "supervised", source="x")
    assert list(caught.value.problems) == [1, 2, 3, 4, 5, 6, 7]
    assert "line 3 has no" in str(caught.value)
    assert str(caught.value).endswith("; and 4 more lines")


def is_read_or_refused(data: bytes, method: Any) -> bool:
    """Return whether there are examples, or a sentence that begins with the name of the file."""
    try:
        return bool(read_lines(data, method, source="x"))
    except ConfigError as error:
        return str(error).startswith("x")


@given(st.binary(max_size=60), st.sampled_from(["supervised", "dpo"]))
def test_any_bytes_are_read_or_refused_in_a_sentence(data: bytes, method: Any) -> None:
    assert is_read_or_refused(data, method)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["messages", "role", "content", "prompt", "completion", "chosen", "rejected",
                         "input", "preferred_output", "non_preferred_output", "weight", "text", "type"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(_JSON, st.sampled_from(["supervised", "dpo"]))
def test_any_json_is_read_or_refused_in_a_sentence(line: Any, method: Any) -> None:
    assert is_read_or_refused(json.dumps(line).encode(), method)
