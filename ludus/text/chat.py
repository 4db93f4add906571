"""A request to a chat model, and its answer, as every provider understands them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "content_filter"]


class ChatMessage(NamedTuple):
    """One message of a conversation."""

    role: Role
    content: str


class TokenLogprob(NamedTuple):
    """A sampled token and its log-probability."""

    token: int
    """Its id in the vocabulary of the model, -1 where the provider does not tell."""
    logprob: float


@dataclass(frozen=True)
class ChatRequest:
    """`n` samples of the next message of a conversation."""

    model: str
    messages: tuple[ChatMessage, ...]
    n: int
    """The number of samples."""
    seed: int
    """Seed of the samples: sample i of a request follows from (seed, i), whatever else is sampled."""
    max_tokens: int
    """The maximum number of tokens of a sample."""
    temperature: float
    """0 takes the most likely token."""
    top_p: float
    """Sample from the most likely tokens of this total probability; 1 from all."""
    stop: tuple[str, ...] = ()
    """Texts that end a sample; they are not part of it."""
    logprobs: bool = False
    """Return the tokens of each sample and their log-probabilities."""

    def digest(self) -> str:
        """Return a hash of the whole request."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ChatChoice:
    """One sample."""

    text: str
    finish_reason: FinishReason
    num_tokens: int
    """The number of tokens sampled, the end-of-message token included where there is one."""
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True)
class ChatAnswer:
    """The samples of a request, in order, and what they cost."""

    choices: tuple[ChatChoice, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Those of the prompt that the provider had computed before, where it says so."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> ChatAnswer:
        """Return the answer that `to_json` wrote."""
        choices = []
        for one in found["choices"]:
            logprobs = one["logprobs"]
            tokens = None if logprobs is None else tuple(TokenLogprob(*pair) for pair in logprobs)
            choices.append(ChatChoice(one["text"], one["finish_reason"], one["num_tokens"], tokens))
        cached = found.get("cached_tokens", 0)
        return cls(tuple(choices), found["prompt_tokens"], found["completion_tokens"], cached)
