"""YAML is read without surprises, and no file can run code, hang or fill the memory."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ludus.config.strict_yaml import MAX_BYTES, MAX_DEPTH, dump, parse
from ludus.core.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def refusal(text: str | bytes) -> str:
    """Return the sentence with which the text is refused, within a second of work."""
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        parse(text, source="my.yaml")
    assert time.process_time() - start < 1
    message = str(caught.value)
    assert message.startswith("my.yaml: ")
    return message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E+3", 1e3),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_a_plain_value_is_what_it_looks_like(text: str, value: object) -> None:
    read = parse(text, source="x")
    assert read == value
    assert type(read) is type(value)


WORDS = ["on", "off", "yes", "no", "True", "NULL", "infinity", "nan", "=", "<<"]


@pytest.mark.parametrize(
    "text",
    [*WORDS, "12:30", "1:30:00", "2024-01-01", "0x10", "0o7", "1_000", "e5", "1e", "1.2.3", "-x"],
)
def test_a_word_that_other_readers_would_convert_stays_text(text: str) -> None:
    assert parse(text, source="x") == text


def test_a_merge_key_is_only_a_key() -> None:
    assert parse("<<: {a: 1}\nb: 2", source="x") == {"<<": {"a": 1}, "b": 2}


@pytest.mark.parametrize("text", ["'010'", '"on"', "'1e-3'", '"null"', "'true'"])
def test_quotes_make_text_of_anything(text: str) -> None:
    assert parse(text, source="x") == text[1:-1]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("010", "10"), ("007", "7"), ("00", "0"), ("-010", "-10"), ("+0_1", "+1")],
)
def test_a_leading_zero_is_refused_with_both_remedies(text: str, remedy: str) -> None:
    message = refusal(f"a: 1\nseed: {text}")
    assert "line 2" in message
    assert f"write {remedy}, or '{text}' in quotes" in message


def test_a_number_too_long_for_python_is_refused() -> None:
    assert "5000 digits" in refusal("seed: " + "9" * 5000)


def test_a_duplicate_key_is_refused_naming_both_lines() -> None:
    message = refusal("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3")
    assert "line 5" in message
    assert "'c' appears twice (first on line 3)" in message


def test_the_same_key_may_stand_in_two_sections() -> None:
    assert parse("a: {k: 1}\nb: {k: 2}", source="x") == {"a": {"k": 1}, "b": {"k": 2}}


def test_a_list_cannot_be_a_key() -> None:
    assert "line 2: a key must be a word" in refusal("a: 1\n? [1, 2]\n: 3")


def test_a_billion_laughs_are_refused_at_the_first() -> None:
    lines = ['a0: &a0 ["lol", "lol"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "line 1: anchors and aliases" in refusal("\n".join(lines))


def test_an_alias_alone_is_refused() -> None:
    assert "anchors and aliases" in refusal("a: *b")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "{a: " * 15_000,
        "- " * 20_000 + "1",
        "? " * 20_000,
        "\n".join(" " * depth + "a:" for depth in range(350)),
        "\n".join(" " * depth + "-" for depth in range(350)),
    ],
    ids=["flow list", "flow mapping", "block list", "block keys", "deep mapping", "deep list"],
)
def test_deep_nesting_is_refused_at_once(text: str) -> None:
    assert f"nested more than {MAX_DEPTH} deep" in refusal(text)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, source="x") == _nested(MAX_DEPTH)


def _nested(depth: int) -> list[Any]:
    return [_nested(depth - 1)] if depth > 1 else []


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "a: !!python/name:os.system",
        "a: !!python/object:ludus.core.Run {}",
        "a: !!int 3",
        "a: !!set {1, 2}",
        "a: !mine 3",
        "a: ! 3",
        "%TAG ! tag:evil,2000:\n---\na: !x 3",
    ],
)
def test_any_tag_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is not allowed; write plain values" in refusal(text)
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    assert "not UTF-8 text (byte 3)" in refusal(b"a: \xff\xfe")
    assert "not UTF-8" in refusal("a: 1".encode("utf-16"))


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse("a: 1".encode("utf-8-sig"), source="x") == {"a": 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_an_empty_file_holds_nothing(text: str) -> None:
    assert parse(text, source="x") is None


def test_a_file_too_large_is_refused() -> None:
    assert f"over {MAX_BYTES} characters" in refusal("a: 1\n" + "#" * MAX_BYTES)


@pytest.mark.parametrize("line", ["- a\n", "a\n", "[], ", "? a\n", "- - a\n", "\n"])
def test_the_largest_file_takes_only_a_moment(line: str) -> None:
    text = (line * MAX_BYTES)[:MAX_BYTES]
    start = time.process_time()
    with contextlib.suppress(ConfigError):
        parse(text, source="x")
    assert time.process_time() - start < 2


def test_a_tab_is_refused_with_the_remedy() -> None:
    message = refusal("a:\n\tb: 1")
    assert "line 2, column 1" in message
    assert "indent with spaces, not tabs" in message


@pytest.mark.parametrize(
    "text", ["a: [1", "a: b: c", "'open", "a: 1\n---\nb: 2", "\x00", "a: \x07"]
)
def test_what_is_not_yaml_is_refused(text: str) -> None:
    assert "not readable as YAML" in refusal(text)


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_shipped_config_survives_being_written_back(path: Path) -> None:
    data = parse(path.read_bytes(), source=str(path))
    assert isinstance(data, dict)
    assert parse(dump(data), source="again") == data
    assert list(parse(dump(data), source="again")) == list(data)


LOOKALIKES = [
    "",
    "null",
    "~",
    "true",
    "on",
    "No",
    "1e5",
    "010",
    "12:30",
    ".inf",
    "-",
    "- a",
    "a: b",
]
LOOKALIKES += [
    "# no",
    " a ",
    "a\nb",
    "\t",
    "&a",
    "*a",
    "!x",
    "%a",
    "@",
    "`",
    "|",
    ">",
    "{",
    "]",
    "'",
]
LOOKALIKES += [
    '"',
    "\x00",
    "\x85",
    "\u2028",
    "\ufeff",
    "é",
    "日本",
    "🙂",
    "<<",
    "=",
    "?",
    "0x1f",
    "1_0",
]

texts = st.text(max_size=200) | st.sampled_from(LOOKALIKES)
scalars = st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats() | texts
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


@given(trees)
@settings(max_examples=150, deadline=None, database=None)
@example({"a": {"b": [[], {}, [{}], {"c": []}]}})
@example({text: text for text in LOOKALIKES})
@example({"k" * 200: "v" * 5000, "long line": "word " * 100})
@example([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-8, 1e16, 5e-324, 0.1])
def test_whatever_is_written_is_read_back_unchanged(data: object) -> None:
    assert _same(parse(dump(data), source="x"), data)


@given(st.text(st.sampled_from("ab1.0e-+_:,?!&*#|>@%`'\"[]{}<=~ \t\n\\"), max_size=40))
@settings(max_examples=300, deadline=None, database=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    found = None
    with contextlib.suppress(ConfigError):
        found = parse(text, source="x")
    assert found is None or _same(parse(dump(found), source="x"), found)


@given(st.binary(max_size=40))
@settings(max_examples=100, deadline=None, database=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = None
    with contextlib.suppress(ConfigError):
        found = parse(data, source="x")
    assert found is None or _same(parse(dump(found), source="x"), found)


def test_other_readers_take_a_word_that_was_written_for_the_same_word() -> None:
    words = [*WORDS, *LOOKALIKES, "Off", "Y", "n", "FALSE", "Null"]
    assert yaml.safe_load(dump(words)) == words


def _same(one: Any, two: Any) -> bool:
    """Return whether two trees are equal, type by type, in the same order, NaN being equal to NaN."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return repr(one) == repr(two)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, dict):
        return list(one) == list(two) and all(map(_same, one.values(), two.values()))
    return bool(one == two)
