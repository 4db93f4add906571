"""What is asked of a model's sampler, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ludus.core.errors import LudusError
from ludus.text.chat import FinishReason, TokenLogprob

MAX_TOP_LOGPROBS = 20


class RequestError(LudusError):
    """A request cannot be sampled as it is."""


class PromptTooLong(RequestError):
    """A prompt leaves no room for a sample in the model's context."""


@dataclass(frozen=True)
class SampleRequest:
    """`n` samples that continue a prompt."""

    prompt: tuple[int, ...]
    """The tokens of the prompt."""
    n: int
    """The number of samples."""
    seed: int
    """Seed of the samples: sample i follows from (seed, i), whatever else is sampled, for any n."""
    max_tokens: int
    """The maximum number of tokens of a sample; the model's context may end it before."""
    temperature: float = 1.0
    """The logits are divided by this; 0 takes the most likely token."""
    top_p: float = 1.0
    """Sample from the most likely tokens of this total probability; 1 from all."""
    stop: tuple[str, ...] = ()
    """Texts that end a sample; they are not part of its text."""
    logprobs: bool = False
    """Return the log-probability of each token, at temperature 1 and without penalties or bias."""
    top_logprobs: int = 0
    """The number of most likely tokens that are returned for each position."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens that the sample has."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit of a token once for each time that the sample has it."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of tokens."""

    def check(self, vocab_size: int, context: int) -> None:
        """Raise RequestError, in one sentence, unless the model can sample it."""
        for problem in self._problems(vocab_size):
            raise RequestError(problem)
        if len(self.prompt) >= context:
            raise PromptTooLong(
                f"the prompt has {len(self.prompt)} tokens, and the model's context is {context} tokens of"
                " prompt and sample together; shorten the messages"
            )

    def _problems(self, vocab_size: int) -> Iterator[str]:
        if not self.prompt:
            yield "the prompt has no token; give at least one"
        elif not 0 <= min(self.prompt) <= max(self.prompt) < vocab_size:
            yield f"the prompt has tokens that the model has not: it has those from 0 to {vocab_size - 1}"
        if self.n < 1:
            yield f"n is {self.n}; ask for at least one sample"
        if self.max_tokens < 1:
            yield f"max_tokens is {self.max_tokens}; it must be at least 1"
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            yield f"temperature is {self.temperature}; it must be a number of 0 or more"
        if not 0 < self.top_p <= 1:
            yield f"top_p is {self.top_p}; it must be above 0, and at most 1"
        if any(not text for text in self.stop):
            yield "a stop text is empty; leave it out"
        if not 0 <= self.top_logprobs <= min(MAX_TOP_LOGPROBS, vocab_size):
            yield f"top_logprobs is {self.top_logprobs}; it must be from 0 to {MAX_TOP_LOGPROBS}"
        if not all(0 <= token < vocab_size for token in self.logit_bias):
            yield f"logit_bias names a token that the model has not: it has {vocab_size}"
        numbers = [self.presence_penalty, self.frequency_penalty, *self.logit_bias.values()]
        if not all(map(math.isfinite, numbers)):
            yield "a penalty or a value of logit_bias is not a finite number"

    @property
    def changes_logits(self) -> bool:
        """Whether it has a bias or a penalty."""
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty)


@dataclass(frozen=True)
class Sample:
    """One sample."""

    tokens: tuple[int, ...]
    """All sampled tokens, the one that ended the sample included."""
    text: str
    """Their text, up to a stop text; bytes that are no UTF-8 are replaced."""
    finish_reason: FinishReason
    """`stop` for an end token or a stop text, `length` for max_tokens or the context."""
    logprobs: tuple[float, ...] = ()
    """The log-probability of each token, if asked for."""
    top: tuple[tuple[TokenLogprob, ...], ...] = ()
    """For each token, the most likely ones, the likeliest first, if asked for."""


class Piece(NamedTuple):
    """What a stream gets for one token of a sample."""

    token: int
    text: str
    """The text that is certain by now and was not given before; empty within a character or a stop text."""
    logprob: float | None
    top: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    """None before the last token."""


OnToken = Callable[[int, Piece], object]
"""Called with the index of a sample and its next piece, from the thread that samples."""
