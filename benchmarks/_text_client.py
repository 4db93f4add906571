"""Ask a server on loopback that answers after 50 ms: ludus's client, one worker, and a pool of 8 processes.

The requests are those of an iteration: 512 questions of a few hundred bytes, one sample each. One worker and
the pool ask through the openai client, as scripts do. The server is a process of its own that answers without
computing anything, so what is measured is the client. The pool is started, and its clients are connected,
before the time begins.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks._harness import Case, Role

REQUESTS = 512
DELAY_MS = 50
CONCURRENCY = 128
POOL = 8
_PROMPT = "Here are eleven letters: " + "a b " * 60 + "Which are more? Question "
_KEY = "none"


def cases() -> list[Case]:
    """Return what is compared: the time of an iteration, and the client's CPU time of a request."""
    return [
        _case("512 rollouts", "ludus", "iteration_seconds", "ludus", "s"),
        _case("512 rollouts", "one worker", "one_worker_seconds", "reference", "s"),
        _case("512 rollouts", "pool of 8 processes", "pool_seconds", "peer", "s"),
        _case("CPU of a request", "ludus", "ludus_cpu_ms", "ludus", "ms"),
        _case("CPU of a request", "openai", "openai_cpu_ms", "peer", "ms"),
        _case("CPU of a request", "aiohttp alone", "aiohttp_cpu_ms", "reference", "ms"),
        _case("journal and ledger", "ludus", "journal_share", "ludus", "% of the stage"),
    ]


def _case(work: str, system: str, function: str, role: Role, unit: str) -> Case:
    requires = ("openai",) if system in ("openai", "one worker") or "pool" in system else ()
    return Case(work, system, unit, role, __name__, function, requires=requires)


def iteration_seconds() -> float:
    """Time 512 requests of the ludus client, with its journal on disk and its ledger."""
    with _server(DELAY_MS) as url:
        return asyncio.run(_ludus(url))["wall"]


def ludus_cpu_ms() -> float:
    """Return the CPU time of a request of the ludus client, journal and ledger included."""
    with _server(0) as url:
        return asyncio.run(_ludus(url))["cpu"] * 1e3 / REQUESTS


def journal_share() -> float:
    """Return the part of an iteration that the journal and the ledger keep the event loop, in per cent."""
    with _server(DELAY_MS) as url:
        found = asyncio.run(_ludus(url, is_timed=True))
        return 100 * found["books"] / found["wall"]


async def _ludus(url: str, *, is_timed: bool = False) -> dict[str, float]:
    import functools
    import os
    from pathlib import Path

    from ludus.store.journal import Journal
    from ludus.store.local import LocalStorage
    from ludus.text.chat import ChatMessage, ChatRequest
    from ludus.text.client.client import Client
    from ludus.text.client.config import ClientConfig, PriceConfig, RetryConfig, SpendingConfig
    from ludus.text.client.ledger import Ledger
    from ludus.text.provider import ProviderServices
    from ludus.text.providers.openai import Openai, OpenaiConfig

    os.environ["LUDUS_BENCHMARK_KEY"] = _KEY
    price = PriceConfig(input=1.0, cached_input=0.5, output=2.0, training=3.0)
    budget = SpendingConfig(max_cost=100.0, max_tokens=None, prices={"*": price})
    key = {"variable": "LUDUS_BENCHMARK_KEY", "file": None}
    config = ClientConfig(
        max_concurrency=CONCURRENCY,
        timeout_seconds=60.0,
        retry=RetryConfig(
            max_attempts=3, first_delay_seconds=0.5, max_delay_seconds=8.0, deadline_seconds=120.0
        ),
        record_answers="always",
        cache=None,
        model_days=0,
        settle_seconds=600.0,
        job_deadline_seconds=600.0,
    )

    def request(number: int) -> ChatRequest:
        messages = (ChatMessage("user", f"{_PROMPT}{number}"),)
        return ChatRequest("tiny", messages, 1, number, 16, 1.0, 1.0)

    # A directory on disk, as that of a run: a sync in memory costs nothing.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        storage = LocalStorage(folder)
        journal = functools.cache(lambda name: Journal(storage, name))
        services = ProviderServices(directory=lambda: Path(folder), seed=0)
        provider = Openai(OpenaiConfig(kind="openai", url=url, key=key), services)
        ledger = Ledger(budget)
        books = [0.0, 0.0]
        async with Client(provider, config, journal=journal, ledger=ledger) as client:

            async def ask(number: int) -> str:
                name = str(number)
                answer = await client.chat(request(number), key=name, agent="a", stage="b")
                return answer.choices[0].text

            # The first requests load modules and connect.
            client.begin(0)
            await client.together(ask(number) for number in range(CONCURRENCY))
            client.begin(1)
            if is_timed:
                for owner, name in (
                    (client.answers, "put"),
                    (client.answers, "find"),
                    (ledger, "book"),
                    (ledger, "worst_of"),
                    (ledger, "would_exceed"),
                    (ledger, "free"),
                ):
                    setattr(owner, name, _timed(getattr(owner, name), books))
            wall, cpu = time.perf_counter(), time.process_time()
            await client.together(ask(number) for number in range(REQUESTS))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        storage.close()
    # The clocks take time themselves, as much as between an empty function's.
    empty = [0.0, 0.0]
    nothing = _timed(lambda: None, empty)
    for _ in range(10_000):
        nothing()
    spent = books[0] - books[1] * empty[0] / empty[1] if is_timed else 0.0
    return {"wall": wall, "cpu": cpu, "books": spent}


def _timed(function: Callable[..., Any], total: list[float]) -> Callable[..., Any]:
    def timed(*given: Any, **more: Any) -> Any:
        # The thread's own time: on a busy machine others would be counted too.
        began = time.thread_time()
        try:
            return function(*given, **more)
        finally:
            total[0] += time.thread_time() - began
            total[1] += 1

    return timed


def _openai_body(number: int) -> dict[str, Any]:
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"{_PROMPT}{number}"}],
        "n": 1,
        "seed": number,
        "max_completion_tokens": 16,
        "temperature": 1.0,
        "top_p": 1.0,
    }


_client: Any = None


def _worker_starts(url: str) -> None:
    global _client
    import openai

    _client = openai.OpenAI(base_url=url, api_key=_KEY)


def _worker_asks(number: int) -> str:
    return str(_client.chat.completions.create(**_openai_body(number)).choices[0].message.content)


def one_worker_seconds() -> float:
    """Time 512 requests, one after the other."""
    with _server(DELAY_MS) as url:
        _worker_starts(url)
        _worker_asks(0)
        began = time.perf_counter()
        for number in range(REQUESTS):
            _worker_asks(number)
        return time.perf_counter() - began


def pool_seconds() -> float:
    """Time 512 requests of a pool of 8 processes, which take the next one each time."""
    context = multiprocessing.get_context("fork")
    with _server(DELAY_MS) as url, context.Pool(POOL, _worker_starts, (url,)) as pool:
        pool.map(_worker_asks, range(4 * POOL), chunksize=4)
        began = time.perf_counter()
        for _ in pool.imap_unordered(_worker_asks, range(REQUESTS)):
            pass
        return time.perf_counter() - began


def openai_cpu_ms() -> float:
    """Return the CPU time of a request of the asynchronous openai client."""
    import openai

    async def main(url: str) -> float:
        async with openai.AsyncOpenAI(base_url=url, api_key=_KEY) as client:

            async def ask(number: int) -> str:
                found = await client.chat.completions.create(**_openai_body(number))
                return str(found.choices[0].message.content)

            return await _cpu_of(ask)

    with _server(0) as url:
        return asyncio.run(main(url))


def aiohttp_cpu_ms() -> float:
    """Return the CPU time of a request of aiohttp with orjson: the least that is possible here."""
    import aiohttp
    import orjson

    async def main(url: str) -> float:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def ask(number: int) -> str:
                data = orjson.dumps(_openai_body(number))
                async with session.post(f"{url}/chat/completions", data=data) as response:
                    found = orjson.loads(await response.read())
                return str(found["choices"][0]["message"]["content"])

            return await _cpu_of(ask)

    with _server(0) as url:
        return asyncio.run(main(url))


async def _cpu_of(ask: Callable[[int], Any]) -> float:
    """Return the CPU milliseconds of a request, 128 in flight."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(number: int) -> None:
        async with gate:
            await ask(number)

    await asyncio.gather(*[one(number) for number in range(CONCURRENCY)])
    began = time.process_time()
    await asyncio.gather(*[one(number) for number in range(REQUESTS)])
    return (time.process_time() - began) * 1e3 / REQUESTS


@contextmanager
def _server(delay_ms: int) -> Iterator[str]:
    """Yield the URL of a server in a process of its own."""
    command = [sys.executable, "-m", __name__, str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


class _Canned(asyncio.Protocol):
    """Answers every request with the same bytes, after a delay."""

    def __init__(self, delay: float, answer: bytes) -> None:
        self._delay, self._answer, self._rest = delay, answer, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._rest) < end + 4 + length:
                return
            self._rest = self._rest[end + 4 + length :]
            asyncio.get_running_loop().call_later(self._delay, self._transport.write, self._answer)


async def _serve(delay: float) -> None:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "logprobs": None,
        "message": {"role": "assistant", "content": "There are more a than b.", "refusal": None},
    }
    answer = {
        "id": "chatcmpl-0123456789",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "tiny",
        "choices": [choice],
        "usage": {"prompt_tokens": 290, "completion_tokens": 8, "total_tokens": 298},
    }
    body = json.dumps(answer).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    whole = head.encode() + body
    server = await loop.create_server(lambda: _Canned(delay, whole), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main(arguments: Sequence[str]) -> None:
    """Serve until the process is ended."""
    asyncio.run(_serve(float(arguments[0]) / 1e3))


if __name__ == "__main__":
    main(sys.argv[1:])
