"""What a run would ask of its provider: requests, tokens and money, counted without asking anything.

Episodes are played by speakers that answer with the longest text their agent may give, so the counts of
tokens are upper bounds: a token is a byte at least, and a chat template adds some. With a usual vocabulary
it is about a quarter. Epochs that are left to the provider count as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ludus.text.client.config import MILLION, SpendingConfig
from ludus.text.client.spending import prompt_bound
from ludus.text.config import TextHyperParameters
from ludus.text.rollouts.play import Answer, TurnRequest


@dataclass
class Estimated:
    """The sums of one stage and model."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    training_tokens: int = 0
    jobs: int = 0
    example_tokens: int = 0
    """Those of each answer with its prompt, as a job would learn from all of them."""

    def cost(self, model: str, budget: SpendingConfig) -> float | None:
        """Return the money at the prices of a model; None if it has none."""
        price = budget.price_of(model)
        if price is None:
            return None
        tokens = (
            self.prompt_tokens * price.input
            + self.completion_tokens * price.output
            + self.training_tokens * price.training
        )
        return tokens / MILLION


@dataclass
class LongestAnswers:
    """A speaker that gives the longest answers, all different, and counts what it was asked."""

    max_tokens: int
    counts: Estimated = field(default_factory=Estimated)
    max_retries: int = 0
    _num_answers: int = 0

    async def answer(self, asked: TurnRequest, count: int) -> Sequence[Answer]:
        """Return answers that decide nothing, as long as they may be.

        No two are equal, or the prompts of those who read them would be, and one request would serve them.
        """
        self.counts.requests += 1
        prompt = prompt_bound(asked.prompt)
        self.counts.prompt_tokens += prompt
        self.counts.completion_tokens += count * self.max_tokens
        self.counts.example_tokens += count * (prompt + self.max_tokens)
        first, self._num_answers = self._num_answers, self._num_answers + count
        numbers = range(first, first + count)
        return [Answer(str(one)[-self.max_tokens :].rjust(self.max_tokens, "x")) for one in numbers]


def training_tokens(sampled: Estimated, num_epochs: int) -> int:
    """Return the tokens of passes over all that was sampled, if everything were selected."""
    return sampled.example_tokens * num_epochs


def times(one: Estimated, number: int) -> Estimated:
    """Return the sums of so many of them."""
    return Estimated(
        one.requests * number,
        one.prompt_tokens * number,
        one.completion_tokens * number,
        one.training_tokens * number,
        one.jobs * number,
        one.example_tokens * number,
    )


def num_tests(config: TextHyperParameters) -> int:
    """Return the number of iterations with a test."""
    length = config.max_iterations
    return sum(config.text_rl.is_tested(iteration, length) for iteration in range(length))


def lines(rows: Mapping[tuple[str, str, str], Estimated], config: TextHyperParameters) -> list[str]:
    """Return a table of the sums by stage, agent and model, and their total."""
    head = ("stage", "agent", "model", "requests", "prompt", "sampled", "trained", "cost")
    table = [head, *(_row(key, one, config.budget) for key, one in rows.items())]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    found = [_line(row, widths) for row in table]
    return [*found, _total(rows, config)]


def _row(key: tuple[str, str, str], one: Estimated, budget: SpendingConfig) -> tuple[str, ...]:
    cost = one.cost(key[2], budget)
    numbers = one.requests or one.jobs, one.prompt_tokens, one.completion_tokens
    shown = [f"{number:,}" for number in (*numbers, one.training_tokens)]
    return (*key, *shown, "-" if cost is None else f"{cost:,.2f}")


def _line(row: Iterable[str], widths: Sequence[int]) -> str:
    cells = [
        text.ljust(width) if column < 3 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _total(rows: Mapping[tuple[str, str, str], Estimated], config: TextHyperParameters) -> str:
    requests = sum(one.requests for one in rows.values())
    jobs = sum(one.jobs for one in rows.values())
    tokens = sum(
        one.prompt_tokens + one.completion_tokens + one.training_tokens for one in rows.values()
    )
    costs = [one.cost(model, config.budget) for (_, _, model), one in rows.items()]
    known = [cost for cost in costs if cost is not None]
    what = f"at most {requests:,} requests, {jobs:,} jobs and {tokens:,} tokens"
    if len(known) < len(costs):
        return f"{what}; the cost is unknown: 'budget.prices' has no price of every model"
    return f"{what}, which cost at most {sum(known):,.2f}"
