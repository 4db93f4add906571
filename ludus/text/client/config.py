"""The config sections of the client: `client`, its `retry`, and `budget` with its prices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import Count, Positive, PositiveFloat, StrictConfig

Amount = Annotated[float, Field(ge=0)]
"""A number of 0 or more."""
MILLION = 1_000_000


class RetryConfig(StrictConfig):
    """How requests are repeated that failed for a reason that may pass."""

    max_attempts: Positive
    """The maximum number of tries of a request, the first included."""
    first_delay_seconds: PositiveFloat
    """The longest wait before the second try; it doubles with each try, and a random part of it is waited."""
    max_delay_seconds: PositiveFloat
    """The longest wait between two tries; one that the provider asks for may be longer."""
    deadline_seconds: PositiveFloat
    """The longest time from the first try of a request to its answer; after it the run stops."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if self.first_delay_seconds > self.max_delay_seconds:
            yield (
                f"'first_delay_seconds' is {self.first_delay_seconds}, above 'max_delay_seconds'"
                f" ({self.max_delay_seconds}); lower it"
            )


class ClientConfig(StrictConfig):
    """How the provider is asked: pace, retries, what is kept, and how long jobs may take."""

    max_concurrency: Positive
    """The maximum number of requests in flight; below it their number adapts to what the provider takes."""
    timeout_seconds: PositiveFloat
    """The longest time that one try of a request may take."""
    retry: RetryConfig
    """How failed requests are repeated."""
    record_answers: Literal["always", "if_needed"]
    """Whether the journal keeps every answer, or only those of providers whose answers do not repeat."""
    cache: str | None
    """A directory where answers are kept for other runs that ask exactly the same; null: none are."""
    model_days: Count
    """A model that the provider shuts down within this number of days is refused before work begins."""
    settle_seconds: Amount
    """How long a job may be missing from the provider's list although it was created; until then a creation
    whose outcome is unknown is not repeated. Above the delay of the provider's list, or a job may be paid
    twice."""
    job_deadline_seconds: PositiveFloat
    """The longest time to wait for fine-tuning jobs; after it the run stops, and a resume waits again."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if self.retry.deadline_seconds < self.timeout_seconds:
            yield (
                f"'timeout_seconds' is {self.timeout_seconds}, above 'retry.deadline_seconds'"
                f" ({self.retry.deadline_seconds}), which a single try would pass; lower it"
            )


class PriceConfig(StrictConfig):
    """The prices of a model, each of a million tokens, in the currency of `max_cost`."""

    input: Amount
    """Of prompts."""
    cached_input: Amount
    """Of the part of prompts that the provider had computed before."""
    output: Amount
    """Of samples."""
    training: Amount
    """Of training, for each token in each epoch."""


class SpendingConfig(StrictConfig):
    """What the run may spend; it stops before a request or job that could exceed it."""

    max_cost: Amount | None
    """The maximum amount of money, in the currency of the prices; null: no limit."""
    max_tokens: Count | None
    """The maximum number of tokens, of prompts, samples and training together; null: no limit."""
    prices: dict[str, PriceConfig]
    """The prices by model; a name that ends in * stands for all models whose names begin so."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        for name in self.prices:
            if "*" in name[:-1]:
                yield f"'prices.{name}': * may stand at the end of a name only"

    def price_of(self, model: str) -> PriceConfig | None:
        """Return the prices of a model: those of its name, else of its longest beginning, else None."""
        if model in self.prices:
            return self.prices[model]
        fitting = [
            name for name in self.prices if name.endswith("*") and model.startswith(name[:-1])
        ]
        return self.prices[max(fitting, key=len)] if fitting else None
