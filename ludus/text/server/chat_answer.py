"""Answers to chat requests, whole or streamed, as OpenAI's API gives them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from ludus.text.chat import TokenLogprob
from ludus.text.models.tokenizer import ChatTokenizer
from ludus.text.sampling.request import Sample
from ludus.text.server.chat_request import ChatParameters
from ludus.text.server.ids import next_id
from ludus.text.server.loaded_models import LoadedModel

DONE = b"data: [DONE]\n\n"
_LEAST = -9999.0
"""The log-probability that OpenAI gives for a probability of zero, which JSON cannot hold."""


TokenRow = tuple[int, float, Sequence[TokenLogprob]]
"""A token, its log-probability, and the most likely tokens in its place."""


class PendingChat(NamedTuple):
    """A request on its way: what answers to it need."""

    id: str
    created: int
    chat: ChatParameters
    model: LoadedModel
    prompt: tuple[int, ...]

    def head(self, kind: str) -> dict[str, Any]:
        """Return the fields with which each object of the answer begins."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": self.model.fingerprint,
        }


def asked(chat: ChatParameters, model: LoadedModel, prompt: tuple[int, ...]) -> PendingChat:
    """Return a request that is answered from now on."""
    return PendingChat(next_id("chatcmpl-"), int(time.time()), chat, model, prompt)


def whole(request: PendingChat, samples: Sequence[Sample]) -> bytes:
    """Return the body of an answer that is not streamed."""
    chat = request.chat
    answer = request.head("chat.completion")
    choices: list[dict[str, Any]] = []
    for index, sample in enumerate(samples):
        choice = {
            "index": index,
            "message": {"role": "assistant", "content": sample.text, "refusal": None},
            "logprobs": _logprobs(request, sample) if chat.logprobs else None,
            "finish_reason": sample.finish_reason,
        }
        if chat.return_token_ids:
            choice["token_ids"] = sample.tokens
        choices.append(choice)
    answer["choices"] = choices
    answer["usage"] = usage(request, samples)
    answer["service_tier"] = "default"
    if chat.return_token_ids:
        answer["prompt_token_ids"] = request.prompt
    return orjson.dumps(answer)


def usage(request: PendingChat, samples: Sequence[Sample]) -> dict[str, int]:
    """Return the number of tokens."""
    prompt, completion = len(request.prompt), sum(len(sample.tokens) for sample in samples)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def chunk(
    request: PendingChat,
    *,
    index: int | None = None,
    delta: dict[str, Any] | None = None,
    finish_reason: str | None = None,
    logprobs: dict[str, Any] | None = None,
    token_ids: Sequence[int] | None = None,
    samples: Sequence[Sample] | None = None,
) -> bytes:
    """Return one event of a stream: a part of a choice, or the usage of these samples."""
    event = request.head("chat.completion.chunk")
    event["choices"] = []
    if index is not None:
        choice = {
            "index": index,
            "delta": delta or {},
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        if token_ids is not None:
            choice["token_ids"] = token_ids
        event["choices"].append(choice)
    if request.chat.includes_usage:
        event["usage"] = None if samples is None else usage(request, samples)
    return b"data: " + orjson.dumps(event) + b"\n\n"


def _logprobs(request: PendingChat, sample: Sample) -> dict[str, Any]:
    tops = sample.top or ((),) * len(sample.tokens)
    rows = zip(sample.tokens, sample.logprobs, tops, strict=True)
    return token_logprobs(request.model.tokenizer, rows)


def token_logprobs(tokenizer: ChatTokenizer, rows: Iterable[TokenRow]) -> dict[str, Any]:
    """Return the log-probabilities of tokens, each with those of the most likely ones."""
    content = []
    for token, logprob, top in rows:
        others = [_token(tokenizer, *other) for other in top]
        content.append({**_token(tokenizer, token, logprob), "top_logprobs": others})
    return {"content": content, "refusal": None}


def _token(tokenizer: ChatTokenizer, token: int, logprob: float) -> dict[str, Any]:
    return {
        "token": tokenizer.token_text(token),
        "bytes": list(tokenizer.token_bytes(token)),
        "logprob": max(logprob, _LEAST) if math.isfinite(logprob) else _LEAST,
    }
