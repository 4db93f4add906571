"""Tokens and money that requests and jobs have cost, and the most that they may cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ludus.core.errors import StorageError
from ludus.text.chat import ChatAnswer, ChatMessage, ChatRequest
from ludus.text.client.config import MILLION, PriceConfig
from ludus.text.jobs import Job, JobSpec

# No tokenizer makes more tokens of a text than it has bytes; a template adds some for each message and once.
_TEMPLATE_TOKENS = 64
_MESSAGE_TOKENS = 16
# The most that a provider chooses where the number of epochs is left to it.
_MOST_EPOCHS = 25


class Payer(NamedTuple):
    """Whose request it was, and in what stage."""

    agent: str
    stage: str
    model: str


class Amount(NamedTuple):
    """A number of tokens and their price."""

    tokens: int
    cost: float


NOTHING = Amount(0, 0.0)


@dataclass
class Spent:
    """What was spent: sums over requests and jobs."""

    requests: int = 0
    """Answered requests."""
    prompt_tokens: int = 0
    """Tokens of prompts, the cached ones included."""
    cached_tokens: int = 0
    completion_tokens: int = 0
    training_tokens: int = 0
    cost: float = 0.0
    lost_requests: int = 0
    """Requests sent whose answer never came, so that what they cost is not known."""
    lost_tokens: int = 0
    """The most tokens that they may have been charged for."""
    lost_cost: float = 0.0
    """The most that they may have cost."""

    def __bool__(self) -> bool:
        return self.requests > 0 or self.lost_requests > 0 or self.tokens > 0 or self.cost > 0

    @property
    def tokens(self) -> int:
        """Return the tokens of prompts, samples and training."""
        return self.prompt_tokens + self.completion_tokens + self.training_tokens

    @property
    def at_most(self) -> Amount:
        """Return what was spent, counting what is unknown as its maximum."""
        return Amount(self.tokens + self.lost_tokens, self.cost + self.lost_cost)

    def copy(self) -> Spent:
        """Return a sum that changes on its own."""
        return Spent(*self.to_json())  # type: ignore[arg-type]

    def as_lost(self) -> Spent:
        """Return the same sum for answers that were paid for and are not used."""
        if not self:
            return Spent()
        tokens, cost = self.at_most
        return Spent(
            lost_requests=self.requests + self.lost_requests, lost_tokens=tokens, lost_cost=cost
        )

    def add(self, other: Spent) -> None:
        """Add another sum to this one."""
        for name in _NAMES:
            if value := getattr(other, name):
                setattr(self, name, getattr(self, name) + value)

    def subtract(self, other: Spent) -> None:
        """Take another sum, which was added before, from this one."""
        for name in _NAMES:
            if value := getattr(other, name):
                # Rounding may leave less than nothing.
                setattr(self, name, max(0, getattr(self, name) - value))

    def to_json(self) -> list[float]:
        """Return it as a row of numbers."""
        return [getattr(self, name) for name in _NAMES]

    @classmethod
    def from_json(cls, row: object) -> Spent:
        """Return the sum that `to_json` wrote."""
        values = row if isinstance(row, list) else []
        if len(values) != len(_NAMES) or not all(_is_amount(value) for value in values):
            raise StorageError(f"{row!r} is no sum of what was spent")
        return cls(*values)


_NAMES = tuple(field.name for field in fields(Spent))


def _is_amount(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0  # type: ignore[operator,arg-type]


def total(sums: Iterable[Spent]) -> Spent:
    """Return the sum of several."""
    found = Spent()
    for one in sums:
        found.add(one)
    return found


def rows_of(sums: Mapping[Payer, Spent]) -> list[list[Any]]:
    """Return sums by payer as JSON."""
    return [[*payer, *spent.to_json()] for payer, spent in sums.items()]


def read_rows(rows: object) -> Iterator[tuple[Payer, Spent]]:
    """Yield the sums that `rows_of` wrote."""
    for row in rows if isinstance(rows, list) else ():
        is_row = isinstance(row, list) and len(row) > 3
        if not is_row or not all(isinstance(word, str) for word in row[:3]):
            raise StorageError(f"{row!r} does not say who spent something")
        yield Payer(*row[:3]), Spent.from_json(row[3:])


def prompt_bound(messages: Sequence[ChatMessage]) -> int:
    """Return a number of tokens that a prompt does not exceed, whatever the tokenizer."""
    size = sum(len(message.content.encode()) for message in messages)
    return size + _MESSAGE_TOKENS * len(messages) + _TEMPLATE_TOKENS


def worst_of_request(request: ChatRequest, price: PriceConfig | None) -> Amount:
    """Return the most that a request may be charged for."""
    prompt, completion = prompt_bound(request.messages), request.n * request.max_tokens
    if price is None:
        return Amount(prompt + completion, 0.0)
    input_price = max(price.input, price.cached_input)
    return Amount(prompt + completion, (prompt * input_price + completion * price.output) / MILLION)


def spent_on(answer: ChatAnswer, price: PriceConfig | None) -> Spent:
    """Return what an answer was charged for."""
    cached = min(answer.cached_tokens, answer.prompt_tokens)
    cost = 0.0
    if price is not None:
        new = answer.prompt_tokens - cached
        cost = new * price.input + cached * price.cached_input
        cost += answer.completion_tokens * price.output
    return Spent(1, answer.prompt_tokens, cached, answer.completion_tokens, cost=cost / MILLION)


def worst_of_job(spec: JobSpec, price: PriceConfig | None) -> Amount:
    """Return the most that a fine-tuning job may be charged for: every byte of its file, in every epoch."""
    epochs = math.ceil(spec.hyperparameters.get("n_epochs", _MOST_EPOCHS))
    tokens = len(spec.lines) * max(1, epochs)
    return Amount(tokens, 0.0 if price is None else tokens * price.training / MILLION)


def spent_on_job(job: Job, price: PriceConfig | None, worst: Amount) -> Spent:
    """Return what a job was charged for; its maximum while it runs, or where the provider does not say."""
    tokens = job.trained_tokens
    if tokens is None and job.status != "failed":
        return Spent(training_tokens=worst.tokens, cost=worst.cost)
    tokens = tokens or 0
    cost = 0.0 if price is None else tokens * price.training / MILLION
    return Spent(training_tokens=tokens, cost=cost)
