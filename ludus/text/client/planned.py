"""Dry run: the requests, tokens and cost of a run before it begins, by agent, stage and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludus.text.client.config import MILLION, BudgetConfig

_HEADINGS = ("agent", "stage", "model", "requests", "prompt", "completion", "training", "cost")


@dataclass(frozen=True)
class Planned:
    """Requests, or jobs, of one agent in one stage, over the whole run."""

    agent: str
    stage: str
    model: str
    requests: int
    """The number of requests, or of jobs."""
    prompt_tokens: int
    """Tokens of all their prompts."""
    completion_tokens: int
    """The most tokens of all their samples."""
    training_tokens: int
    """Tokens of all training files, times their epochs."""


@dataclass(frozen=True)
class Estimate:
    """What a run would ask for and cost at most."""

    rows: tuple[tuple[Planned, float | None], ...]
    """Each part with its cost; None where the budget has no price of its model."""
    requests: int
    tokens: int
    cost: float
    problems: tuple[str, ...]
    """Why the run would stop before its end."""

    def lines(self) -> list[str]:
        """Return a table and what is wrong, for people."""
        table: list[tuple[str, ...]] = [_HEADINGS]
        for one, cost in self.rows:
            counts = (one.requests, one.prompt_tokens, one.completion_tokens, one.training_tokens)
            shown = "no price" if cost is None else f"{cost:,.4g}"
            table.append((one.agent, one.stage, one.model, *(f"{n:,}" for n in counts), shown))
        widths = [max(len(row[at]) for row in table) for at in range(len(_HEADINGS))]
        lines = [
            "  ".join(
                cell.ljust(width) if at < 3 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        total = f"at most {self.requests:,} requests, {self.tokens:,} tokens, cost {self.cost:,.4g}"
        return [*lines, total, *self.problems]


def estimate(planned: Sequence[Planned], budget: BudgetConfig) -> Estimate:
    """Return what the parts of a run would cost at most, under the prices of a budget."""
    rows = []
    for one in planned:
        price = budget.price_of(one.model)
        cost = None
        if price is not None:
            cost = one.prompt_tokens * max(price.input, price.cached_input)
            cost += one.completion_tokens * price.output + one.training_tokens * price.training
            cost /= MILLION
        rows.append((one, cost))
    tokens = sum(one.prompt_tokens + one.completion_tokens + one.training_tokens for one in planned)
    cost = sum(found or 0.0 for _, found in rows)
    return Estimate(
        tuple(rows),
        sum(one.requests for one in planned),
        tokens,
        cost,
        tuple(_problems(rows, tokens, cost, budget)),
    )


def _problems(
    rows: Sequence[tuple[Planned, float | None]], tokens: int, cost: float, budget: BudgetConfig
) -> list[str]:
    found = []
    missing = sorted({one.model for one, price in rows if price is None})
    if missing and budget.max_cost is not None:
        found.append(
            f"'budget.prices' has no prices of {' and '.join(missing)}, and 'budget.max_cost' is"
            f" {budget.max_cost:g}; add them"
        )
    for name, limit, most in (
        ("max_cost", budget.max_cost, cost),
        ("max_tokens", budget.max_tokens, tokens),
    ):
        if limit is not None and most > limit:
            found.append(
                f"'budget.{name}' is {limit:,.6g}, and the run may need {most:,.6g}; it may stop before its"
                " end"
            )
    return found
