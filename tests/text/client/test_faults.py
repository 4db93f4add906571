"""A provider that fails in every way: bounded tries, each answer used once, and what is final is final."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ludus.core.errors import Interrupted
from ludus.text.client.client import Client
from ludus.text.provider import ProviderError
from tests.text.client.parts import ask, client_config, openai, opened, retry
from tests.text.faulty_server import FaultyServer, Request

PASSING = [
    "before",
    "after",
    "cut",
    "short",
    "garbage",
    "empty",
    "429",
    "429 retry-after-ms=5",
    "429 retry-after=0",
    "500",
    "502",
    "503",
    "408",
    "409",
    "400 x-should-retry=true",
]
FINAL = [400, 401, 403, 404, 413, 422]


def once(fault: str) -> Callable[[Request], str | None]:
    """Return a server's fault that strikes its first request alone."""
    faults = iter([fault])
    return lambda request: next(faults, None)


def answers(fault: Callable[[Request], str | None], number: int = 1, **keys: Any) -> FaultyServer:
    """Ask a faulty server, check the answers, and return it."""

    async def main() -> FaultyServer:
        async with (
            FaultyServer(fault=fault) as server,
            opened(openai(server.url), **keys) as client,
        ):
            found = await client.together(ask(client, at) for at in range(number))
            assert [answer.choices[0].text for answer in found] == ["sample 0"] * number
            return server

    return asyncio.run(main())


def error_of(fault: Callable[[Request], str | None], **keys: Any) -> tuple[ProviderError, int]:
    """Ask a server that keeps failing; return the error and the number of tries."""

    async def main() -> tuple[ProviderError, int]:
        async with (
            FaultyServer(fault=fault) as server,
            opened(openai(server.url), **keys) as client,
        ):
            with pytest.raises(ProviderError) as raised:
                await ask(client, 0)
            return raised.value, len(server.requests)

    return asyncio.run(main())


@pytest.mark.parametrize("fault", [one for one in PASSING if not one.startswith("400")])
def test_a_passing_fault_is_survived_by_one_more_try(fault: str) -> None:
    assert len(answers(once(fault)).requests) == 2


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_an_answer_that_does_not_come_in_time_is_asked_for_again(fault: str) -> None:
    server = answers(once(fault), config=client_config(timeout_seconds=0.3))
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", FINAL)
def test_a_refusal_that_is_final_is_never_repeated(status: int) -> None:
    error, tries = error_of(lambda request: f"{status} x-should-retry=true")
    assert (error.status, error.is_transient, error.is_known, tries) == (status, False, True, 1)
    assert f"fault {status}" in str(error)


def test_tries_are_bounded_and_their_number_is_told() -> None:
    error, tries = error_of(lambda request: "500")
    assert tries == 4
    assert str(error) == "OpenAI failed with 500: fault 500; given up after 4 tries"
    assert not error.is_known


def test_the_server_may_say_that_another_try_is_useless() -> None:
    assert error_of(lambda request: "500 x-should-retry=false")[1] == 1
    error, tries = error_of(lambda request: "429 code=insufficient_quota")
    assert tries == 1
    assert "no credit left" in str(error)
    assert not error.is_rate_limit


def test_a_wait_past_the_deadline_is_not_begun() -> None:
    config = client_config(timeout_seconds=5.0, retry=retry(deadline_seconds=5.0))
    error, tries = error_of(lambda request: "429 retry-after=60", config=config)
    assert tries == 1
    assert error.retry_after == 60
    assert "past 'client.retry.deadline_seconds' (5)" in str(error)


def test_all_requests_wait_as_long_as_the_server_asks() -> None:
    async def main() -> list[float]:
        arrived: list[float] = []

        def fault(request: Request) -> str | None:
            arrived.append(time.monotonic())
            return "429 retry-after-ms=300" if len(arrived) == 1 else None

        async with FaultyServer(fault=fault) as server:
            config = client_config(max_concurrency=1)
            async with opened(openai(server.url), config=config) as client:
                await client.together(ask(client, at) for at in range(3))
        return arrived

    arrived = asyncio.run(main())
    assert len(arrived) == 4
    assert arrived[1] - arrived[0] >= 0.3


def test_a_refused_key_stops_everything_at_once_with_one_sentence() -> None:
    async def main() -> int:
        async with FaultyServer(fault=lambda request: "401", delay=0.01) as server:
            config = client_config(max_concurrency=2)
            async with opened(openai(server.url), config=config) as client:
                with pytest.raises(ProviderError, match="does not accept the key in the variable"):
                    await client.together(ask(client, at) for at in range(50))
                with pytest.raises(ProviderError, match="does not accept the key"):
                    await ask(client, 99)
            return len(server.requests)

    assert asyncio.run(main()) <= 2


def test_an_unreachable_host_stops_everything_at_once_with_one_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"

        async def main() -> None:
            async with opened(openai(url)) as client:
                with pytest.raises(ProviderError, match=f"cannot be reached at {url}") as raised:
                    await client.together(ask(client, at) for at in range(50))
                assert "try" not in str(raised.value)

        began = time.process_time()
        asyncio.run(main())
        assert time.process_time() - began < 1


def test_an_interrupt_ends_the_waiting_once_the_journal_is_flushed() -> None:
    interrupted = []

    async def main() -> tuple[int, bool]:
        async with FaultyServer(delay=0.05) as server:
            config = client_config(max_concurrency=4)
            provider = openai(server.url)
            ended = lambda: bool(interrupted)  # noqa: E731
            async with opened(provider, config=config, is_interrupted=ended) as client:
                flushed = []
                real = client.answers.flush

                async def flush() -> None:
                    await real()
                    flushed.append(True)

                client.answers.flush = flush  # type: ignore[method-assign]
                loop = asyncio.get_running_loop()
                loop.call_later(0.12, interrupted.append, True)
                with pytest.raises(Interrupted):
                    await client.together(ask(client, at) for at in range(1000))
                is_flushed = bool(flushed)
                # What was in flight was paid for, so it was waited for.
                assert client.ledger.spent.requests == server.answered
                assert client.ledger.spent.lost_requests == 0
            return len(server.requests), is_flushed

    sent, is_flushed = asyncio.run(main())
    assert 4 <= sent < 200
    assert is_flushed


def campaign(seed: int, number: int) -> None:
    """Ask `number` questions of a server that fails at random; each is answered, and used once."""
    generator = random.Random(seed)
    faults = [*PASSING[:-1], None, None, None, None]
    struck: Counter[str] = Counter()

    def fault(request: Request) -> str | None:
        question = request.body["messages"][0]["content"]
        struck[question] += 1
        # The last try of every request is left alone, so that all end well.
        return None if struck[question] % 4 == 0 else generator.choice(faults)

    async def main() -> None:
        async with FaultyServer(fault=fault) as server:
            server.answer = lambda body, index: f"{body['messages'][0]['content']}/{index}"
            async with opened(openai(server.url)) as client:
                found = await client.together(ask(client, at, n=2) for at in range(number))
                for at, answer in enumerate(found):
                    texts = [choice.text for choice in answer.choices]
                    assert texts == [f"question {at}/0", f"question {at}/1"]
                check_books(client, server, number)

    asyncio.run(main())
    assert max(struck.values()) <= 4


def check_books(client: Client, server: FaultyServer, number: int) -> None:
    """Check that the ledger knows each answer once, and every computed answer that never arrived."""
    spent = client.ledger.spent
    assert spent.requests == number
    assert spent.completion_tokens == 6 * number
    # Some tries were lost before the server did anything, which nobody can know.
    assert spent.lost_requests >= server.answered - number
    assert client.ledger.spent.cost == pytest.approx(number * (10 * 1.0 + 6 * 2.0) / 1e6)


@pytest.mark.parametrize("seed", range(3))
def test_under_random_faults_every_answer_arrives_and_is_used_once(seed: int) -> None:
    campaign(seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_under_random_faults_every_answer_arrives_and_is_used_once_in_the_campaign(
    seed: int,
) -> None:
    campaign(seed, 400)
