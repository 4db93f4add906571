"""The ledger: what was spent, by agent, stage and model, under a cap that is never exceeded.

Before a request or job is sent, the most that it can cost is reserved: the cap holds for what was spent, the
unknown cost of requests that were lost, and all reservations together. While others are in flight a request
that would not fit waits for them, as most cost less than their maximum.

The truth is in the journals, which a resume never truncates: `begin` reads them. The state in a checkpoint
only makes sure that a journal which was deleted or shortened does not make the run forget money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.text.chat import ChatRequest
from ludus.text.client.answers import Iteration
from ludus.text.client.config import PriceConfig, SpendingConfig
from ludus.text.client.spending import (
    NOTHING,
    Amount,
    Payer,
    Spent,
    read_rows,
    rows_of,
    total,
    worst_of_request,
)

JOBS = -1
"""The number under which the fine-tuning jobs of all iterations are summed."""
_EARLIER = -2


class BudgetSpent(LudusError):
    """The next request or job could exceed the budget."""


class Ledger:
    """Sums of what was spent, by iteration and payer. A part of the run."""

    def __init__(self, config: SpendingConfig) -> None:
        self.config = config
        self._spent: dict[int, dict[Payer, Spent]] = {}
        self._all = Spent()
        self._saved: dict[Payer, Spent] = {}
        self._is_begun = False
        self._reserved = NOTHING
        self._num_reserved = 0
        self._changed: list[asyncio.Future[None]] = []

    def check_prices(self, models: Iterable[str]) -> None:
        """Raise ConfigError, before work begins, for a model without prices under a cap on money."""
        if self.config.max_cost is None:
            return
        missing = sorted({model for model in models if self.config.price_of(model) is None})
        if missing:
            raise ConfigError(
                f"'budget.max_cost' is {self.config.max_cost:g}, and 'budget.prices' has no prices of"
                f" {' and '.join(missing)}; add them (all 0 for a model that costs nothing)"
            )

    def price_of(self, model: str) -> PriceConfig | None:
        """Return the prices of a model; raise ConfigError if it has none under a cap on money."""
        price = self.config.price_of(model)
        if price is None:
            self.check_prices([model])
        return price

    @property
    def spent(self) -> Spent:
        """Return the sum of everything."""
        return self._all

    def of_iteration(self, iteration: int, *, stage: str | None = None) -> Spent:
        """Return the sum of the requests of an iteration, or of one of its stages."""
        rows = self._spent.get(iteration, {}).items()
        return total(one for payer, one in rows if stage is None or payer.stage == stage)

    def by_payer(self) -> dict[Payer, Spent]:
        """Return the sums by agent, stage and model, over all iterations and jobs."""
        found: dict[Payer, Spent] = {}
        for sums in self._spent.values():
            for payer, spent in sums.items():
                found.setdefault(payer, Spent()).add(spent)
        return found

    def begin(self, iterations: Iterable[Iteration]) -> None:
        """Take over the sums of all journals, in place of those known for the same iterations."""
        for one in iterations:
            self._spent[one.number] = {payer: spent.copy() for payer, spent in one.spent.items()}
        self._is_begun = True
        self._add_missing()

    def replace(self, iteration: Iteration) -> None:
        """Take over the sums of one iteration, whose journal was read again."""
        self._spent[iteration.number] = {
            payer: spent.copy() for payer, spent in iteration.spent.items()
        }
        self._sum_up()

    def _sum_up(self) -> None:
        self._all = total(spent for sums in self._spent.values() for spent in sums.values())

    def book(self, iteration: int, payer: Payer, spent: Spent, *, instead_of: Spent) -> None:
        """Count what a request or job has cost up to now, in place of what was counted for it before."""
        if spent == instead_of:
            return
        for sums in (self._spent.setdefault(iteration, {}).setdefault(payer, Spent()), self._all):
            sums.subtract(instead_of)
            sums.add(spent)

    def worst_of(self, request: ChatRequest) -> Amount:
        """Return the most that a request may be charged for."""
        return worst_of_request(request, self.price_of(request.model))

    def would_exceed(self, amount: Amount, *, what: str) -> str | None:
        """Return a sentence if this amount cannot be spent any more, whatever is in flight costs."""
        spent = self._all.at_most
        for name, limit, used, more in (
            ("max_cost", self.config.max_cost, spent.cost, amount.cost),
            ("max_tokens", self.config.max_tokens, spent.tokens, amount.tokens),
        ):
            if limit is not None and used + more > limit:
                return (
                    f"'budget.{name}' is {_shown(limit)}: {_shown(used)} is spent{self._lost(name)}, and"
                    f" {what} may take up to {_shown(more)} more; raise it and resume"
                )
        return None

    def _lost(self, name: str) -> str:
        lost = self._all.lost_cost if name == "max_cost" else self._all.lost_tokens
        if not lost:
            return ""
        return (
            f" (up to {_shown(lost)} of it by {self._all.lost_requests} requests without an answer)"
        )

    async def reserve(self, amount: Amount, *, what: str) -> None:
        """Reserve an amount, once it fits; raise BudgetSpent if it never will."""
        while (problem := self.would_exceed(amount, what=what)) is None:
            if self._fits(amount):
                self._reserved = _sum(self._reserved, amount)
                self._num_reserved += 1
                return
            future = asyncio.get_running_loop().create_future()
            self._changed.append(future)
            await future
        raise BudgetSpent(problem)

    def _fits(self, amount: Amount) -> bool:
        all_of_it = _sum(_sum(self._all.at_most, self._reserved), amount)
        cost, tokens = self.config.max_cost, self.config.max_tokens
        is_cheap = cost is None or all_of_it.cost <= cost
        return is_cheap and (tokens is None or all_of_it.tokens <= tokens)

    def free(self, amount: Amount) -> None:
        """Give back a reservation, after what it really cost was added."""
        self._num_reserved -= 1
        left = Amount(self._reserved.tokens - amount.tokens, self._reserved.cost - amount.cost)
        # Sums of floating-point numbers leave a rest.
        self._reserved = left if self._num_reserved else NOTHING
        waiting, self._changed = self._changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def summary(self) -> str:
        """Return one sentence with what was spent."""
        spent = self._all
        parts = [
            f"{spent.requests} requests",
            f"{spent.prompt_tokens} prompt tokens ({spent.cached_tokens} cached)",
            f"{spent.completion_tokens} completion tokens",
            f"{spent.training_tokens} training tokens",
        ]
        lost = ""
        if spent.lost_requests:
            most = _shown(spent.lost_cost)
            lost = f"; {spent.lost_requests} requests had no answer and cost at most {most}"
        return f"spent {_shown(spent.cost)}: {', '.join(parts)}{lost}"

    def state_dict(self) -> dict[str, Any]:
        """Return the sums, by payer."""
        return {"spent": rows_of(self.by_payer())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Add what a checkpoint knows and the journals do not."""
        states.check_keys(state, "spent")
        try:
            saved = dict(read_rows(states.rows(state, "spent")))
        except LudusError as error:
            raise states.StateError("spent", f"cannot be read: {error}") from None
        self._saved = saved
        self._add_missing()

    def _add_missing(self) -> None:
        """Add what the checkpoint knows and the journals, once they are read, do not."""
        self._spent.pop(_EARLIER, None)
        known = self.by_payer()
        missing = {
            payer: _missing(spent, known.get(payer, Spent()))
            for payer, spent in self._saved.items()
        }
        self._spent[_EARLIER] = {payer: spent for payer, spent in missing.items() if spent}
        if self._is_begun:
            self._saved = {}
        self._sum_up()


def _missing(saved: Spent, known: Spent) -> Spent | None:
    """Return what the saved sum has above the known one, None if it has nothing."""
    pairs = zip(saved.to_json(), known.to_json(), strict=True)
    above = [max(0, mine - theirs) for mine, theirs in pairs]
    # A rest of rounding is no money.
    above = [value if value > 1e-9 else 0 for value in above]
    return Spent.from_json(above) if any(above) else None


def _sum(first: Amount, second: Amount) -> Amount:
    return Amount(first.tokens + second.tokens, first.cost + second.cost)


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
