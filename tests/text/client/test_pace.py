"""The pace: it grows while the provider keeps up, falls when it does not, and respects what headers allow."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import pytest

from ludus.text.client.limits import Allowance, Limits
from ludus.text.client.pace import Congestion, Pace
from tests.text.client.parts import ask, client_config, openai, opened, retry
from tests.text.faulty_server import FaultyServer, Request


def simulate(
    congestion: Congestion,
    latency: Callable[[int], float],
    *,
    answers: int,
    refuses_above: int = 10**9,
) -> list[int]:
    """Keep as many requests in flight as allowed, in simulated time; return the limit after each end."""
    now, ends, limits = 0.0, list[tuple[float, float, bool]](), []
    while len(limits) < answers:
        while len(ends) < congestion.limit:
            is_refused = len(ends) >= refuses_above
            heapq.heappush(ends, (now + latency(len(ends) + 1), now, is_refused))
        now, started, is_refused = heapq.heappop(ends)
        if is_refused:
            congestion.refused(started, now)
        else:
            congestion.answered(started, now, is_full=True)
        limits.append(congestion.limit)
    return limits


def test_concurrency_doubles_each_round_trip_up_to_its_maximum() -> None:
    limits = simulate(Congestion(128), lambda in_flight: 0.05, answers=300)
    assert limits[0] == 33
    # Two round trips of 32 and 64 requests.
    assert limits[95] == 128
    assert max(limits) == 128


def test_refusals_halve_the_limit_once_for_all_requests_of_a_round_trip() -> None:
    congestion = Congestion(64)
    simulate(congestion, lambda in_flight: 0.05, answers=200)
    assert congestion.limit == 64
    for _ in range(10):
        congestion.refused(started=1000.0, now=1001.0)
    assert congestion.limit == 32
    congestion.refused(started=1002.0, now=1003.0)
    assert congestion.limit == 16
    for number in range(20):
        congestion.refused(started=2000.0 + number, now=2000.0 + number)
    assert congestion.limit == 1


def test_under_a_server_that_takes_only_so_many_the_limit_swings_around_their_number() -> None:
    limits = simulate(Congestion(512), lambda n: 0.05, answers=20_000, refuses_above=40)
    late = limits[10_000:]
    assert max(late) <= 42
    assert 25 < sum(late) / len(late) < 41


def test_latency_that_grows_without_more_answers_a_second_stops_the_growth() -> None:
    # The server works on 16 at a time; the others wait in its queue.
    limits = simulate(Congestion(512), lambda n: 0.05 * max(1.0, n / 16), answers=6000)
    assert max(limits) < 300
    assert limits[-1] < 64


def test_latency_that_brings_more_answers_a_second_does_not() -> None:
    # A server that batches: twenty times the requests take three times as long.
    limits = simulate(Congestion(256), lambda n: 0.05 * (1 + n / 128), answers=6000)
    assert limits[-1] > 200


def test_requests_start_in_the_order_in_which_they_came() -> None:
    async def main() -> list[int]:
        pace, order = Pace(Congestion(1)), []

        async def one(number: int) -> None:
            started = await pace.start(1)
            order.append(number)
            await asyncio.sleep(0)
            pace.end(started)

        await asyncio.gather(*[one(number) for number in range(50)])
        return order

    assert asyncio.run(main()) == list(range(50))


def test_a_request_that_is_cancelled_while_it_waits_blocks_no_other() -> None:
    async def main() -> None:
        pace = Pace(Congestion(1))
        started = await pace.start(1)
        first, second, third = (asyncio.create_task(pace.start(1)) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        pace.end(started)
        # The second is woken, and cancelled in the same instant.
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.wait_for(third, 5)

    asyncio.run(main())


def test_no_more_requests_start_than_the_headers_allow_until_the_reset() -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    async def main() -> None:
        clock = Clock()
        pace = Pace(Congestion(100), clock=clock)
        pace.note(Limits(Allowance(2, 5.0), Allowance(1000, 60.0)))
        await pace.start(10)
        await pace.start(10)
        third = asyncio.create_task(pace.start(10))
        await asyncio.sleep(0.02)
        assert not third.done()
        clock.now = 5.0
        pace.end(0.0)
        await asyncio.wait_for(third, 5)
        # Of the 1000 tokens 970 are left, until second 60.
        fourth = asyncio.create_task(pace.start(971))
        await asyncio.sleep(0.02)
        assert not fourth.done()
        clock.now = 60.0
        pace.end(0.0)
        await asyncio.wait_for(fourth, 5)

    asyncio.run(main())


def test_a_server_with_a_rate_limit_is_asked_all_the_same_and_refuses_few() -> None:
    refused = []

    async def main() -> int:
        def fault(request: Request) -> str | None:
            if server.in_flight >= 6:
                refused.append(request)
                return "429 retry-after-ms=20"
            return None

        async with FaultyServer(fault=fault, delay=0.01) as server:
            config = client_config(retry=retry(max_attempts=30))
            async with opened(openai(server.url), config=config) as client:
                await client.together(ask(client, number) for number in range(150))
            return len(server.requests)

    assert asyncio.run(main()) == 150 + len(refused)
    assert len(refused) < 75


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_are_in_flight_than_the_config_allows(most: int) -> None:
    async def main() -> int:
        async with FaultyServer(delay=0.005) as server:
            config = client_config(max_concurrency=most)
            async with opened(openai(server.url), config=config) as client:
                await client.together(ask(client, number) for number in range(20))
            return server.most_in_flight

    assert asyncio.run(main()) == most
