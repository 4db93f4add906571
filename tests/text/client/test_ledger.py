"""The ledger: the cap is never exceeded, nothing is forgotten at a kill, and nothing is counted twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from ludus.config.sections import validate
from ludus.core.errors import CheckpointError, ConfigError
from ludus.text.client.client import Client
from ludus.text.client.config import MILLION, SpendingConfig
from ludus.text.client.ledger import BudgetSpent, Ledger
from ludus.text.client.spending import Payer, Spent, worst_of_request
from tests.text.client.parts import (
    PRICE,
    ask,
    budget,
    client_config,
    openai,
    opened,
    request,
    retry,
    spec,
)
from tests.text.faulty_server import FaultyServer, Request

ASKED = {"agent": "solver", "stage": "sample"}


def test_tokens_and_money_are_counted_by_agent_stage_and_model() -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            await client.chat(request(n=2), key="a", agent="solver", stage="sample")
            await client.chat(request(), key="b", agent="prover", stage="sample")
            await client.chat(request(), key="c", agent="prover", stage="test")
            by_payer = client.ledger.by_payer()
            price = (10 * PRICE.input + 6 * PRICE.output) / MILLION
            expected = Spent(1, 10, 0, 6, cost=price)
            assert by_payer[Payer("solver", "sample", "tiny")] == expected
            assert by_payer[Payer("prover", "test", "tiny")].completion_tokens == 3
            assert client.ledger.of_iteration(0, stage="sample").requests == 2
            assert client.ledger.of_iteration(1).requests == 0
            assert "3 requests, 30 prompt tokens" in client.ledger.summary()

    asyncio.run(main())


def test_cached_tokens_have_a_price_of_their_own() -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            real = server._chat

            async def chat(body: dict[str, Any]) -> dict[str, Any]:
                answer = await real(body)
                answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 4}
                return answer

            server._chat = chat  # type: ignore[method-assign]
            async with opened(openai(server.url)) as client:
                await ask(client, 0)
                spent = client.ledger.spent
                assert (spent.prompt_tokens, spent.cached_tokens) == (10, 4)
                assert spent.cost == pytest.approx((6 * 1.0 + 4 * 0.5 + 3 * 2.0) / MILLION)

    asyncio.run(main())


def test_an_answer_that_does_not_say_what_it_took_counts_as_all_it_may_have_taken() -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            real = server._chat

            async def chat(body: dict[str, Any]) -> dict[str, Any]:
                return {**await real(body), "usage": None}

            server._chat = chat  # type: ignore[method-assign]
            async with opened(openai(server.url)) as client:
                await ask(client, 0)
                worst = worst_of_request(request("question 0"), PRICE)
                assert client.ledger.spent.at_most == pytest.approx(worst)

    asyncio.run(main())


def spend(max_cost: float, number: int, **keys: Any) -> tuple[FaultyServer, Client, str]:
    """Ask until the budget is spent; return the server, the client and the message."""

    async def main() -> tuple[FaultyServer, Client, str]:
        async with FaultyServer(delay=0.001, **keys) as server:
            ledger = Ledger(budget(max_cost=max_cost))
            config = client_config(retry=retry(max_attempts=100))
            async with opened(openai(server.url), ledger=ledger, config=config) as client:
                with pytest.raises(BudgetSpent) as raised:
                    await client.together(ask(client, at, n=3) for at in range(number))
                return server, client, str(raised.value)

    return asyncio.run(main())


def test_the_cap_is_never_exceeded_and_nearly_used_up() -> None:
    worst = worst_of_request(request("question 10", n=3), PRICE).cost
    cost = (10 * PRICE.input + 9 * PRICE.output) / MILLION
    cap = 40.5 * cost + worst
    server, client, message = spend(cap, 500)
    assert client.ledger.spent.cost <= cap
    # It stops only when not even one more request is sure to fit.
    assert client.ledger.spent.cost + worst > cap
    assert client.ledger.spent.requests == server.answered == 41
    assert message.startswith(f"'budget.max_cost' is {cap:,.6g}: ")
    assert message.endswith("raise it and resume")
    assert "the next request of solver to tiny may take up to" in message


@pytest.mark.parametrize("seed", range(4))
def test_the_cap_holds_for_what_lost_requests_may_have_cost_too(seed: int) -> None:
    generator = random.Random(seed)

    def fault(request: Request) -> str | None:
        return generator.choice(["after", "cut", "500", "429", None, None])

    worst = worst_of_request(request("question 10", n=3), PRICE).cost
    server, client, message = spend(30 * worst, 500, fault=fault)
    spent = client.ledger.spent
    assert spent.at_most.cost <= 30 * worst * (1 + 1e-9)
    assert spent.lost_requests > 0
    assert "requests without an answer" in message
    # What the server computed is at most what is accounted for.
    assert server.answered <= spent.requests + spent.lost_requests


def test_a_cap_on_tokens_and_a_budget_of_zero_stop_before_the_first_request() -> None:
    async def main(**cap: Any) -> None:
        async with FaultyServer() as server:
            async with opened(openai(server.url), ledger=Ledger(budget(**cap))) as client:
                with pytest.raises(BudgetSpent, match="is 0: 0 is spent, and the next request"):
                    await ask(client, 0)
                with pytest.raises(BudgetSpent):
                    await client.ensure_job(spec(), agent="solver", stage="jobs")
            assert server.requests == []

    asyncio.run(main(max_tokens=0))
    asyncio.run(main(max_cost=0.0))


def test_a_budget_of_zero_allows_what_costs_nothing() -> None:
    async def main() -> None:
        free = {"input": 0.0, "cached_input": 0.0, "output": 0.0, "training": 0.0}
        config = validate(
            SpendingConfig,
            {"max_cost": 0.0, "max_tokens": None, "prices": {"tiny": free}},
            source="x",
        )
        async with FaultyServer() as server:
            async with opened(openai(server.url), ledger=Ledger(config)) as client:
                await ask(client, 0)

    asyncio.run(main())


def test_a_job_is_checked_before_it_is_created_and_counts_at_its_most_until_it_ends() -> None:
    async def main() -> None:
        most = len(spec().lines) * 2 * PRICE.training / MILLION
        async with FaultyServer(steps_to_end=1) as server:
            too_small = Ledger(budget(max_cost=0.99 * most))
            async with opened(openai(server.url), ledger=too_small) as client:
                with pytest.raises(BudgetSpent, match="a job of up to 408 training tokens"):
                    await client.ensure_job(spec(), agent="solver", stage="jobs")
            assert server.jobs == []
            async with opened(openai(server.url), ledger=Ledger(budget(max_cost=most))) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                assert client.ledger.spent.cost == pytest.approx(most)
                with pytest.raises(BudgetSpent):
                    await client.ensure_job(spec("other"), agent="solver", stage="jobs")
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            job = await client.ensure_job(spec(), agent="solver", stage="jobs")
            await client.wait_for_jobs([job], on_progress=lambda jobs: None)
            assert client.ledger.spent.training_tokens == 500
            assert client.ledger.spent.cost == pytest.approx(500 * PRICE.training / MILLION)

    asyncio.run(main())


def test_nothing_is_forgotten_or_counted_twice_over_restarts(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            provider = openai(server.url)
            async with opened(provider, tmp_path) as client:
                await ask(client, 0)
                client.begin(1)
                await ask(client, 0)
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                await client.wait_for_jobs([job], on_progress=lambda jobs: None)
                saved, first = client.ledger.state_dict(), client.ledger.spent.copy()
            for _ in range(2):
                # A resume from the checkpoint of iteration 0 does iteration 1 once more.
                ledger = Ledger(budget())
                ledger.load_state_dict(saved)
                assert ledger.spent == pytest.approx(first)
                async with opened(provider, tmp_path, ledger=ledger) as client:
                    client.begin(1)
                    await ask(client, 0)
                    job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                    await client.wait_for_jobs([job], on_progress=lambda jobs: None)
                    assert client.ledger.spent == pytest.approx(first)
            assert len(server.asked("/chat/completions")) == 2

    asyncio.run(main())


def test_money_is_remembered_by_the_checkpoint_where_the_journal_was_deleted(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            async with opened(openai(server.url), tmp_path / "a") as client:
                await client.together(ask(client, at) for at in range(3))
                saved = client.ledger.state_dict()
            for is_loaded_late in (False, True):
                ledger = Ledger(budget())
                folder = tmp_path / f"b{is_loaded_late}"
                if not is_loaded_late:
                    ledger.load_state_dict(saved)
                async with opened(openai(server.url), folder, ledger=ledger) as client:
                    if is_loaded_late:
                        ledger.load_state_dict(saved)
                    assert ledger.spent.requests == 3
                    await ask(client, 9)
                    assert ledger.spent.requests == 4

    asyncio.run(main())


@pytest.mark.parametrize(
    "row", [["a", "b", "c", 1], ["a", "b", 3], "x", ["a", "b", "c", *[-1] * 9]]
)
def test_a_damaged_state_is_refused(row: Any) -> None:
    with pytest.raises(CheckpointError, match="spent"):
        Ledger(budget()).load_state_dict({"spent": [row]})


def test_prices_are_found_by_the_longest_beginning_and_missing_ones_are_told_before_work() -> None:
    cheap = PRICE.replace(input=0.1)
    config = budget(max_cost=1.0, prices={"tiny": PRICE, "ft:tiny*": cheap, "ft*": PRICE})
    assert config.price_of("ft:tiny:org:x:1") == cheap
    assert config.price_of("ft:other") == PRICE
    with pytest.raises(ConfigError, match=r"'budget.prices' has no prices of big and small"):
        Ledger(config).check_prices(["small", "tiny", "big", "big"])
    Ledger(budget(prices={})).check_prices(["any"])


def test_a_star_within_a_name_is_refused() -> None:
    data = {"max_cost": None, "max_tokens": None, "prices": {"a*b": PRICE.model_dump()}}
    with pytest.raises(ConfigError, match=r"'prices.a\*b': \* may stand at the end"):
        validate(SpendingConfig, data, source="x")
