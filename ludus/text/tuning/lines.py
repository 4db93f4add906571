"""Read the JSON lines of a fine-tuning file: OpenAI's formats and TRL's, with the number of each bad line.

supervised   {"messages": [...]}, assistant messages may have "weight": 0; {"prompt": ..., "completion": ...};
             {"text": ...}
dpo          {"input": {"messages": [...]}, "preferred_output": [...], "non_preferred_output": [...]};
             {"prompt": ..., "chosen": ..., "rejected": ...}; {"chosen": ..., "rejected": ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

from ludus.core.errors import ConfigError
from ludus.text.chat import ChatMessage, Role
from ludus.text.jobs import Method

_ROLES: tuple[Role, ...] = get_args(Role)
_MOST_SHOWN = 3
_FORMATS = {
    "supervised": '{"messages": [...]}, {"prompt": ..., "completion": ...} or {"text": ...}',
    "dpo": (
        '{"input": {"messages": [...]}, "preferred_output": [...], "non_preferred_output": [...]} or'
        ' {"prompt": ..., "chosen": ..., "rejected": ...}'
    ),
}
_UNSUPPORTED = (
    "tools", "functions", "tool_calls", "function_call", "parallel_tool_calls", "images", "image",
    "chat_template_kwargs",
)  # fmt: skip
"""Keys that change how a model is trained elsewhere; others, such as an id, are data about the data."""


class BadLinesError(ConfigError):
    """A training file that is refused; `problems` are sentences without a full stop, by line number."""

    def __init__(self, source: str, problems: Mapping[int, str]) -> None:
        self.problems = dict(sorted(problems.items()))
        shown = [f"line {n} {text}" for n, text in self.problems.items()][:_MOST_SHOWN]
        num_more = len(self.problems) - len(shown)
        more = f"; and {num_more} more lines" if num_more > 1 else "; and one more line"
        super().__init__(f"{source}: {'; '.join(shown)}{more if num_more else ''}")


class Conversation(NamedTuple):
    """Messages, of which some of the assistant's are learned."""

    messages: tuple[ChatMessage, ...]
    is_trained: tuple[bool, ...]
    """Whether each assistant message is learned, in order."""


class PlainText(NamedTuple):
    """A text to continue, without the chat template, and its continuation, which is learned."""

    prompt: str
    completion: str


TrainingText = Conversation | PlainText


class TrainingExample(NamedTuple):
    """One line."""

    line: int
    """Its number in the file, from 1."""
    samples: tuple[TrainingText, ...]
    """One sample; of a preference two: the chosen and the rejected one."""


class _BadLine(Exception):
    """A problem with the line that is being read; the text continues `line 3 `."""


def read_lines(data: bytes, method: Method, *, source: str) -> list[TrainingExample]:
    """Return the examples of a file; raise BadLinesError that names its bad lines.

    `source` names the file in messages. Empty lines are skipped.
    """
    examples: list[TrainingExample] = []
    problems: dict[int, str] = {}
    for number, line in enumerate(_decoded(data, source).split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = _parsed(line)
            samples = _supervised(found) if method == "supervised" else _preference(found)
            examples.append(TrainingExample(number, samples))
        except _BadLine as error:
            problems[number] = str(error)
    if problems:
        raise BadLinesError(source, problems)
    if not examples:
        raise ConfigError(f"{source} has no examples; each line is one: {_FORMATS[method]}")
    return examples


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A byte order mark is not counted in the position, and ends no line.
        line = data.count(b"\n", 0, error.start) + 1
        raise BadLinesError(
            source,
            {line: f"is not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8"},
        ) from None


def _parsed(line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
    except RecursionError:
        raise _BadLine("is not JSON that can be read: it is nested too deep") from None
    except ValueError as error:
        problem = getattr(error, "msg", str(error))
        raise _BadLine(f"is not JSON ({problem})") from None
    if not isinstance(found, dict):
        raise _BadLine(f"is {_type_of(found)}, not an object such as {_FORMATS['supervised']}")
    for key in _UNSUPPORTED:
        if found.get(key):
            raise _BadLine(f"has '{key}', which is not supported here; leave it out")
    return found


def _supervised(found: Mapping[str, object]) -> tuple[TrainingText]:
    if "messages" in found:
        return (_conversation(found["messages"], "messages"),)
    if "completion" in found:
        return (_continued(found.get("prompt"), found["completion"], "completion"),)
    if "text" in found:
        return (PlainText("", _text(found["text"], "text")),)
    if {"chosen", "preferred_output"} & found.keys():
        raise _BadLine("is a preference, but the method is supervised; use the method dpo")
    raise _BadLine(f"has no 'messages'; a line is {_FORMATS['supervised']}")


def _preference(found: Mapping[str, object]) -> tuple[TrainingText, TrainingText]:
    if "input" in found:
        prompt, names = found["input"], ("preferred_output", "non_preferred_output")
        if not isinstance(prompt, dict) or "messages" not in prompt:
            raise _BadLine("has an 'input' without 'messages'")
        for key in _UNSUPPORTED:
            if prompt.get(key):
                raise _BadLine(f"has 'input.{key}', which is not supported here; leave it out")
        before = prompt["messages"]
        if not isinstance(before, list):
            raise _BadLine(f"has 'input.messages' that are {_type_of(before)}, not a list")
    else:
        before, names = found.get("prompt"), ("chosen", "rejected")
    for name in names:
        if name not in found:
            hint = ""
            if {"messages", "completion", "text"} & found.keys():
                hint = ": it is an example for the method supervised"
            raise _BadLine(f"has no '{name}'{hint}; a line is {_FORMATS['dpo']}")
    chosen, rejected = found[names[0]], found[names[1]]
    if before is None:
        before, chosen, rejected = _without_prompt(chosen, rejected)
    return _continued(before, chosen, names[0]), _continued(before, rejected, names[1])


def _without_prompt(chosen: object, rejected: object) -> tuple[object, object, object]:
    """Return what two answers have in common at their beginning, and the rest of each."""
    if isinstance(chosen, str) and isinstance(rejected, str):
        count = _common(chosen, rejected)
        # The space before a word belongs to it.
        count -= chosen[count - 1 : count] == " "
        return chosen[:count], chosen[count:], rejected[count:]
    if isinstance(chosen, list) and isinstance(rejected, list):
        # Two equal conversations differ in their last message at least.
        count = min(_common(chosen, rejected), len(chosen) - 1, len(rejected) - 1)
        return chosen[: max(count, 0)], chosen[max(count, 0) :], rejected[max(count, 0) :]
    raise _BadLine(
        f"has 'chosen' as {_type_of(chosen)} and 'rejected' as {_type_of(rejected)}; give both as text,"
        " or both as lists of messages"
    )


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the longest common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _continued(prompt: object, completion: object, name: str) -> TrainingText:
    """Return a prompt and the completion that is learned, both texts or both lists of messages."""
    if isinstance(completion, str) and (prompt is None or isinstance(prompt, str)):
        return PlainText(_text(prompt or "", "prompt"), _text(completion, name))
    if not isinstance(completion, list) or not isinstance(prompt, list):
        raise _BadLine(
            f"has 'prompt' as {_type_of(prompt)} and '{name}' as {_type_of(completion)}; give both as text,"
            " or both as lists of messages"
        )
    before = [_message(one, "prompt")[0] for one in prompt]
    after = _conversation(completion, name)
    is_before = (False,) * sum(message.role == "assistant" for message in before)
    return Conversation((*before, *after.messages), (*is_before, *after.is_trained))


def _conversation(found: object, name: str) -> Conversation:
    if not isinstance(found, list):
        raise _BadLine(f"has '{name}' as {_type_of(found)}, not a list of messages")
    if not found:
        raise _BadLine(f"has no messages: '{name}' is empty")
    pairs = [_message(one, name) for one in found]
    messages = tuple(message for message, _ in pairs)
    if messages[-1].role != "assistant":
        raise _BadLine(
            f"ends with a message of the {messages[-1].role}; the last of '{name}' is the assistant's, which"
            " the model learns"
        )
    is_trained = tuple(weight for message, weight in pairs if message.role == "assistant")
    if not any(is_trained):
        raise _BadLine(
            f"has weight 0 on every assistant message of '{name}', so it teaches nothing"
        )
    return Conversation(messages, is_trained)


def _message(found: object, name: str) -> tuple[ChatMessage, bool]:
    """Return a message, and whether its weight is 1."""
    if not isinstance(found, dict):
        raise _BadLine(f"has a message in '{name}' that is {_type_of(found)}, not an object")
    role, content, weight = found.get("role"), found.get("content"), found.get("weight", 1)
    role = "system" if role == "developer" else role
    if role not in _ROLES:
        raise _BadLine(f"has a message of the role {_shown(role)}; roles are {', '.join(_ROLES)}")
    for key in ("tool_calls", "function_call", "name"):
        if found.get(key):
            raise _BadLine(f"has a message with '{key}', which is not supported here; leave it out")
    if isinstance(content, list) and content:
        content = "".join(_part(part) for part in content)
    if not isinstance(content, str):
        raise _BadLine(
            f"has a message of the {role} whose content is {_type_of(content)}, not text"
        )
    is_one = type(weight) in (int, float) and weight in (0, 1)
    if not is_one or (role != "assistant" and "weight" in found):
        raise _BadLine(
            f"has a message of the {role} with weight {_shown(weight)}; an assistant message may have 0 or 1"
        )
    return ChatMessage(role, _text(content, "content")), weight == 1


def _part(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise _BadLine("has a message with a part that is not text, which is not supported here")
    return text


def _text(found: object, name: str) -> str:
    if not isinstance(found, str):
        raise _BadLine(f"has '{name}' as {_type_of(found)}, not text")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise _BadLine(f"has half a surrogate pair in '{name}', which is no character") from None
    return found


def _type_of(found: object) -> str:
    names = {
        dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"
    }  # fmt: skip
    return names.get(type(found), "a number")


def _shown(found: object) -> str:
    return json.dumps(found)[:40]
