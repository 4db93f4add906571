"""Fields of a chat request: how each is checked, and its JSON schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludus.text.chat import ChatMessage, Role
from ludus.text.server.errors import invalid

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_NULL_IN_MESSAGES = ("audio", "function_call", "refusal", "tool_calls", "annotations")
MAX_STOPS = 16


@dataclass(frozen=True)
class Number:
    """A number within limits."""

    minimum: float
    maximum: float

    def read(self, value: object, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong_type(name, value, "a number")
        return _within(value, name, self.minimum, self.maximum)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True)
class Integer:
    """An integer within limits."""

    minimum: int
    maximum: int

    def read(self, value: object, name: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(name, value, "an integer")
        return int(_within(value, name, self.minimum, self.maximum))

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True)
class Boolean:
    """True or false."""

    def read(self, value: object, name: str) -> bool:
        if not isinstance(value, bool):
            raise _wrong_type(name, value, "a boolean")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Name:
    """A text that is not empty."""

    def read(self, value: object, name: str) -> str:
        if not isinstance(value, str) or not value:
            raise _wrong_type(name, value, "a string that is not empty")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class Stops:
    """A text, or several, that end a sample."""

    def read(self, value: object, name: str) -> tuple[str, ...]:
        found = [value] if isinstance(value, str) else value
        is_list = isinstance(found, list) and all(isinstance(one, str) and one for one in found)
        if not is_list or not isinstance(found, list) or len(found) > MAX_STOPS:
            raise _wrong_type(name, value, f"a string, or up to {MAX_STOPS}, none of them empty")
        return tuple(found)

    def schema(self) -> dict[str, Any]:
        text = {"type": "string", "minLength": 1}
        return {"anyOf": [text, {"type": "array", "items": text, "maxItems": MAX_STOPS}]}


@dataclass(frozen=True)
class Biases:
    """What is added to the logits of tokens, by their ids."""

    def read(self, value: object, name: str) -> dict[int, float]:
        if not isinstance(value, dict):
            raise _wrong_type(name, value, "an object")
        found = {}
        for token, bias in value.items():
            if not token.isascii() or not token.isdigit() or len(token) > 9:
                raise invalid(f"Invalid key in '{name}': '{token[:20]}' is no token id.", name)
            found[int(token)] = Number(-100, 100).read(bias, f"{name}.{token}")
        return found

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "patternProperties": {"^[0-9]{1,9}$": Number(-100, 100).schema()},
            "additionalProperties": False,
        }


@dataclass(frozen=True)
class StreamOptions:
    """Options of an answer that is streamed: whether it includes the usage."""

    def read(self, value: object, name: str) -> bool:
        if not isinstance(value, dict) or value.keys() - {"include_usage", "include_obfuscation"}:
            raise _wrong_type(name, value, "an object with include_usage")
        for option, is_chosen in value.items():
            Boolean().read(is_chosen, f"{name}.{option}")
        return value.get("include_usage") is True

    def schema(self) -> dict[str, Any]:
        options = {"include_usage": {"type": "boolean"}, "include_obfuscation": {"type": "boolean"}}
        return {"type": "object", "properties": options, "additionalProperties": False}


@dataclass(frozen=True)
class Ignored:
    """A field that cannot change the samples, so that any value is accepted."""

    def read(self, value: object, name: str) -> None:
        return None

    def schema(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Only:
    """A field of which the server supports but these values."""

    values: tuple[Any, ...]

    def read(self, value: object, name: str) -> None:
        # True equals 1 in Python, and not here.
        if not any(value == one and type(value) is type(one) for one in self.values):
            expected = " or ".join(map(repr, self.values)) or "null"
            raise invalid(
                f"Unsupported value: '{name}' is not supported by this server except as {expected}.",
                name,
                "unsupported_value",
            )

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.values)} if self.values else {"type": "null"}


@dataclass(frozen=True)
class Messages:
    """The conversation."""

    def read(self, value: object, name: str) -> tuple[ChatMessage, ...]:
        if not isinstance(value, list):
            raise _wrong_type(name, value, "an array")
        if not value:
            raise invalid("[] is too short - 'messages'", name, "empty_array")
        return tuple([_message(one, number) for number, one in enumerate(value)])

    def schema(self) -> dict[str, Any]:
        part = {
            "type": "object",
            "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}},
            "required": ["type", "text"],
            "additionalProperties": False,
        }
        content = {"anyOf": [{"type": "string"}, {"type": "array", "items": part, "minItems": 1}]}
        unused: dict[str, Any] = {name: {"type": "null"} for name in _NULL_IN_MESSAGES}
        message = {
            "type": "object",
            "properties": {
                "role": {"enum": list(_ROLES)},
                "content": content,
                "name": {"type": ["string", "null"]},
                **unused,
            },
            "required": ["role", "content"],
            "additionalProperties": False,
        }
        return {"type": "array", "items": message, "minItems": 1}


def _message(found: object, number: int) -> ChatMessage:
    where = f"messages[{number}]"
    if not isinstance(found, dict):
        raise _wrong_type(where, found, "an object")
    role = _ROLES.get(found["role"]) if isinstance(found.get("role"), str) else None
    if role is None:
        raise invalid(
            f"Invalid value for '{where}.role': supported values are {', '.join(_ROLES)}.",
            f"{where}.role",
        )
    content = found.get("content")
    if not isinstance(content, str):
        content = _joined(content, f"{where}.content")
    if len(found) > 2:
        _check_rest(found, where)
    return ChatMessage(role, content)


def _joined(content: object, where: str) -> str:
    """Return the text of a message that comes in parts."""
    if not isinstance(content, list) or not content:
        raise _wrong_type(where, content, "a string or an array of text parts")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str) or len(part) != 2:
            raise invalid(
                f"Invalid value for '{where}': this server takes parts of type text.", where
            )
        texts.append(text)
    return "".join(texts)


def _check_rest(found: dict[str, Any], where: str) -> None:
    for name, value in found.items():
        if name in ("role", "content") or (name in _NULL_IN_MESSAGES and value is None):
            continue
        if name == "name" and isinstance(value, str | None):
            continue
        raise invalid(f"Unsupported field: '{where}.{name[:60]}'.", f"{where}.{name[:60]}")


def _within(value: float, name: str, minimum: float, maximum: float) -> float:
    if not minimum <= value <= maximum:
        expected = f">= {minimum}" if value < minimum else f"<= {maximum}"
        code = f"{'decimal' if isinstance(value, float) else 'integer'}_"
        code += "below_min_value" if value < minimum else "above_max_value"
        raise invalid(
            f"Invalid '{name}': expected a value {expected}, but got {value} instead.", name, code
        )
    return value


def _wrong_type(name: str, value: object, expected: str) -> Exception:
    got = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    what = got.get(type(value), repr(value)[:40])
    return invalid(
        f"Invalid type for '{name}': expected {expected}, but got {what} instead.",
        name,
        "invalid_type",
    )


Field = (
    Number | Integer | Boolean | Name | Stops | Biases | StreamOptions | Ignored | Only | Messages
)


def schema_of(fields: dict[str, Field], required: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an object with these fields; those not required may be null."""
    properties = {}
    for name, field in fields.items():
        schema = field.schema()
        is_nullable = name not in required and bool(schema)
        properties[name] = {"anyOf": [schema, {"type": "null"}]} if is_nullable else schema
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def either(
    one: str, value: dict[str, Any], other: str, other_value: dict[str, Any], *, is_required: bool
) -> dict[str, Any]:
    """Return the JSON schema of an object of which one field has its value, or the other field its own.

    The first may also be absent; the other too, unless it is required.
    """
    rest: dict[str, Any] = {"properties": {other: other_value}}
    if is_required:
        rest["required"] = [other]
    return {"anyOf": [{"properties": {one: value}}, rest]}
