"""Strict YAML: nothing is coerced, and no file can run code or fill the memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.events import AliasEvent, MappingStartEvent, NodeEvent, SequenceStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode

from ludus.core.errors import ConfigError

# The largest file is still read, or refused, in well under a second.
MAX_BYTES = 64_000
MAX_DEPTH = 40
MAX_DIGITS = 300

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan"
)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
# Read differently by libyaml: tabs, byte order marks, lone surrogates, block text, complex keys.
_UNUSUAL = re.compile(r"[\t\ufeff\ud800-\udfff|>?]")
_PLAIN = {"": None, "null": None, "~": None, "true": True, "false": False}


class _Loader(yaml.SafeLoader):
    """The safe loader with the implicit types of YAML 1.2 only."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}


class _QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same with libyaml if available, eight times as fast, for text that both read alike."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}


def _construct_scalar(loader: _Loader, node: ScalarNode) -> Any:
    text = node.value
    if node.style:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ConfigError(
                f"line {node.start_mark.line + 1}: half of a surrogate pair; write the character"
            )
        return text
    if text in _PLAIN:
        return _PLAIN[text]
    if _INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ConfigError(
                f"line {node.start_mark.line + 1}: a number of {len(text)} digits;"
                f" {MAX_DIGITS} are allowed, put it in quotes if it is text"
            )
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    if _LEADING_ZERO.fullmatch(text):
        raise ConfigError(
            f"line {node.start_mark.line + 1}: {text} could mean two numbers;"
            f" write {_without_zeros(text)}, or '{text}' in quotes if it is text"
        )
    return text


def _without_zeros(text: str) -> str:
    sign = text[0] if text[0] in "+-" else ""
    return sign + (text.replace("_", "").lstrip("+-0") or "0")


def _construct_mapping(loader: _Loader, node: MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, Hashable):
            raise ConfigError(f"line {line}: a key must be a word, not a list or a mapping")
        if key in seen:
            raise ConfigError(
                f"line {line}: the key '{key}' appears twice (first on line {seen[key]}); keep one"
            )
        seen[key] = line
    return {
        loader.construct_object(key, deep=True): loader.construct_object(value, deep=True)
        for key, value in node.value
    }


def _construct_sequence(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return [loader.construct_object(child, deep=True) for child in node.value]


for _loader in (_Loader, _QuickLoader):
    _loader.add_constructor("tag:yaml.org,2002:str", _construct_scalar)
    _loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
    _loader.add_constructor("tag:yaml.org,2002:seq", _construct_sequence)


def parse(text: str | bytes, *, source: str) -> Any:
    """Return the parsed text; raise ConfigError, naming the source and the line, if it is unsafe."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{source}: not UTF-8 text (byte {error.start}); save the file as UTF-8"
            ) from None
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"{source}: over {MAX_BYTES} characters; a config is a page, not a data file"
        )
    try:
        return _read(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if "'\\t'" in problem:
            problem += "; indent with spaces, not tabs"
        raise ConfigError(f"{source}:{place} not readable as YAML: {problem}") from None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _read(text: str) -> Any:
    if _UNUSUAL.search(text) is None:
        with contextlib.suppress(yaml.YAMLError):
            _refuse_tricks(text, _QuickLoader)
            return _QuickLoader(text).get_single_data()
    # The Python loader reports errors, so the message is the same on every machine.
    _refuse_tricks(text, _Loader)
    return _Loader(text).get_single_data()


def _refuse_tricks(text: str, loader: type[Any]) -> None:
    """Scan the events, without recursion, before anything is built."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        mark = f"line {event.start_mark.line + 1}" if event.start_mark else "somewhere"
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor):
            raise ConfigError(
                f"{mark}: anchors and aliases (& and *) are not allowed; write it out"
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise ConfigError(f"{mark}: the tag '{tag}' is not allowed; write plain values")
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
        elif type(event).__name__ in ("MappingEndEvent", "SequenceEndEvent"):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"{mark}: nested more than {MAX_DEPTH} deep")


class _Dumper(yaml.SafeDumper):
    """Writes every scalar plain, as this module reads it; text that looks like another value is quoted."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent(dumper: _Dumper, value: object) -> Node:
    style = None
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float):
        text = repr(value).replace("inf", ".inf").replace("nan", ".nan")
    else:
        text = str(value)
        if isinstance(value, str):
            # Other YAML parsers would read some of these words as booleans.
            is_word = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) is not None
            style = None if is_word and text.lower() not in _WORDS else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_WORDS = {"on", "off", "yes", "no", "y", "n", "true", "false", "null"}
for _type in (type(None), bool, int, float, str):
    _Dumper.add_representer(_type, _represent)


def dump(data: object) -> str:
    """Return the data as YAML that `parse` reads back unchanged, keys in their order."""
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=100,
    )
    return text
