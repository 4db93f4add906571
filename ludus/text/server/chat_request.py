"""Chat requests: the fields of OpenAI's that the server reads, ignores and refuses.

| field | here |
|---|---|
| model, messages | required; messages of text, from system (or developer), user and assistant |
| n | 1 to 128 samples; they share the computation of the prompt |
| seed | sample i follows from (seed, i); absent: a random seed |
| stop | up to 16 texts |
| temperature, top_p | 0 to 2 (1 if absent), 0 to 1 (1 if absent) |
| max_completion_tokens, max_tokens | one of them; absent, or over what fits: up to the context of the model |
| logprobs, top_logprobs | of the sampled tokens, and of up to 20 others at each place |
| presence_penalty, frequency_penalty, logit_bias | as OpenAI defines them |
| stream, stream_options.include_usage | server-sent events |
| return_token_ids | an addition: `token_ids` in each choice, and `prompt_token_ids`, as vLLM has it |
| user, metadata, service_tier, safety_identifier, prompt_cache_key, prompt_cache_options, prompt_cache_retention, parallel_tool_calls | ignored: they cannot change the samples |
| store, response_format, modalities, tools, tool_choice, functions, function_call, audio, prediction, reasoning_effort, verbosity, moderation, web_search_options | refused, unless they ask for nothing but text |
| any other | refused |

A field that is null is treated as absent.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ludus.text.chat import ChatMessage
from ludus.text.server.chat_fields import (
    Biases,
    Boolean,
    Field,
    Ignored,
    Integer,
    Messages,
    Name,
    Number,
    Only,
    Stops,
    StreamOptions,
    either,
    schema_of,
)
from ludus.text.server.errors import invalid, shown

MAX_SAMPLES = 128
_INT64 = 2**63
_TEXT = {"type": "text"}

FIELDS: dict[str, Field] = {
    "model": Name(),
    "messages": Messages(),
    "n": Integer(1, MAX_SAMPLES),
    "seed": Integer(-_INT64, _INT64 - 1),
    "stop": Stops(),
    "temperature": Number(0, 2),
    "top_p": Number(0, 1),
    "max_completion_tokens": Integer(1, _INT64 - 1),
    "max_tokens": Integer(1, _INT64 - 1),
    "logprobs": Boolean(),
    "top_logprobs": Integer(0, 20),
    "presence_penalty": Number(-2, 2),
    "frequency_penalty": Number(-2, 2),
    "logit_bias": Biases(),
    "stream": Boolean(),
    "stream_options": StreamOptions(),
    "return_token_ids": Boolean(),
    "user": Ignored(),
    "metadata": Ignored(),
    "service_tier": Ignored(),
    "safety_identifier": Ignored(),
    "prompt_cache_key": Ignored(),
    "prompt_cache_options": Ignored(),
    "prompt_cache_retention": Ignored(),
    "parallel_tool_calls": Ignored(),
    "store": Only((False,)),
    "response_format": Only((_TEXT,)),
    "modalities": Only((["text"],)),
    "tools": Only(([],)),
    "tool_choice": Only(("none", "auto")),
    "functions": Only(([],)),
    "function_call": Only(("none", "auto")),
    "audio": Only(()),
    "prediction": Only(()),
    "reasoning_effort": Only(("none",)),
    "verbosity": Only(("medium",)),
    "moderation": Only(()),
    "web_search_options": Only(()),
}
REQUIRED = ("model", "messages")
_NEITHER = {"type": "null"}
SCHEMA = {
    **schema_of(FIELDS, REQUIRED),
    "allOf": [
        either("stream_options", _NEITHER, "stream", {"const": True}, is_required=True),
        either("top_logprobs", {"enum": [0, None]}, "logprobs", {"const": True}, is_required=True),
        either("max_tokens", _NEITHER, "max_completion_tokens", _NEITHER, is_required=False),
    ],
}


@dataclass
class ChatParameters:
    """A chat request, checked."""

    model: str
    messages: tuple[ChatMessage, ...]
    n: int = 1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = None
    """None samples up to the context of the model."""
    logprobs: bool = False
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stream: bool = False
    includes_usage: bool = False
    """Whether a stream ends with the usage."""
    return_token_ids: bool = False


def parse_chat(body: bytes) -> ChatParameters:
    """Return the request of a body, or raise ApiError."""
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise not_json(error) from None
    if not isinstance(found, dict):
        raise invalid("The body of a request must be a JSON object.")
    values: dict[str, Any] = {}
    for name, value in found.items():
        known = FIELDS.get(name)
        if known is None:
            raise invalid(
                f"Unrecognized request argument supplied: {shown(name)}",
                shown(name),
                "unknown_parameter",
            )
        if value is not None:
            values[name] = known.read(value, name)
    for name in REQUIRED:
        if name not in values:
            raise invalid(
                f"Missing required parameter: '{name}'.", name, "missing_required_parameter"
            )
    return _checked(values)


def not_json(error: Exception) -> Exception:
    """Return the error of a body that is no JSON."""
    return invalid(
        f"We could not parse the JSON body of your request: {error}. The body must be valid JSON.",
        code="invalid_json",
    )


def _checked(values: dict[str, Any]) -> ChatParameters:
    if (most := values.pop("max_completion_tokens", None)) is not None:
        if "max_tokens" in values:
            raise invalid(
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
                "max_tokens",
                "invalid_parameter_combination",
            )
        values["max_tokens"] = most
    if values.get("top_logprobs") and not values.get("logprobs"):
        raise invalid(
            "'top_logprobs' takes effect only if 'logprobs' is true.",
            "top_logprobs",
            "invalid_parameter_combination",
        )
    if "stream_options" in values:
        if not values.get("stream"):
            raise invalid(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                "stream_options",
                "invalid_parameter_combination",
            )
        values["includes_usage"] = values.pop("stream_options")
    used = {name: value for name, value in values.items() if name in _USED}
    return ChatParameters(**used)


_USED = frozenset(ChatParameters.__dataclass_fields__)
