"""Tokens a CPU-second of `ludus serve`, beside the same model in process in one batch.

64 clients ask at once, for 8 samples each; the client's own CPU time is not counted. In process, the same 64
requests are one batch.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable

import aiohttp
import psutil
import torch

from benchmarks._harness import Case
from ludus.text.chat import ChatMessage
from ludus.text.models.language_model import load_model
from ludus.text.models.new_model import make_model
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import SampleRequest
from ludus.text.server.new_models import preset
from ludus.text.server.start import ServerHandle, start_server

NUM_CLIENTS, NUM_SAMPLES = 64, 8
NUM_ROUNDS = {32: 6, 7: 20}
"""How often each client asks, by the tokens of an answer."""


def cases() -> list[Case]:
    """Return the server and the batch in process, for answers of 32 and of 7 tokens."""
    return [
        Case(
            work=f"64 clients, n=8, {num_tokens} tokens an answer",
            system=system,
            unit="tokens/CPU-s",
            role="ludus" if system == "served" else "reference",
            module=__name__,
            function=function,
            arguments={"num_tokens": num_tokens},
            requires=("aiohttp", "uvicorn"),
            is_larger_better=True,
        )
        for num_tokens in NUM_ROUNDS
        for system, function in (("served", "served"), ("one batch in process", "in_process"))
    ]


def _question(number: int) -> str:
    return f"question {number:04d} of many"[:20]


def in_process(num_tokens: int) -> float:
    """Return the rate of batches of 64 requests."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_model(preset("tiny"), f"{folder}/tiny")
        model = load_model(f"{folder}/tiny", name="tiny")

    def batch(engine: SamplingEngine, start: int) -> int:
        requests = []
        for number in range(start, start + NUM_CLIENTS):
            said = [ChatMessage("user", _question(number))]
            prompt = model.tokenizer.encode_chat(said, add_generation_prompt=True)
            requests.append(SampleRequest(tuple(prompt), NUM_SAMPLES, number, num_tokens))
        return sum(len(one.tokens) for samples in engine.sample(requests) for one in samples)

    with SamplingEngine(model, max_rows=NUM_CLIENTS * NUM_SAMPLES) as engine:
        batch(engine, 0)
        rounds = range(NUM_ROUNDS[num_tokens])
        return _rate(
            lambda: sum(batch(engine, NUM_CLIENTS * one) for one in rounds), time.process_time
        )


def served(num_tokens: int) -> float:
    """Return the rate of the server's process."""
    with (
        tempfile.TemporaryDirectory() as root,
        start_server(root, new_models={"tiny": preset("tiny")}) as server,
    ):
        process = psutil.Process(server.pid)
        asyncio.run(_asked(server, num_tokens, 1))

        def cpu() -> float:
            times = process.cpu_times()
            return float(times.user + times.system)

        return _rate(lambda: asyncio.run(_asked(server, num_tokens, NUM_ROUNDS[num_tokens])), cpu)


def _rate(work: Callable[[], int], clock: Callable[[], float]) -> float:
    begun = clock()
    count = work()
    return count / (clock() - begun)


async def _asked(server: ServerHandle, num_tokens: int, num_rounds: int) -> int:
    """Let all clients ask, each for its next answer when it has the last; return the tokens."""
    headers = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def client(first: int) -> int:
            total = 0
            for number in range(first, NUM_CLIENTS * num_rounds, NUM_CLIENTS):
                body = {
                    "model": "tiny",
                    "messages": [{"role": "user", "content": _question(number)}],
                    "n": NUM_SAMPLES,
                    "seed": number,
                    "max_tokens": num_tokens,
                }
                async with session.post(f"{server.url}/chat/completions", json=body) as response:
                    found = await response.json()
                total += found["usage"]["completion_tokens"]
            return total

        return sum(await asyncio.gather(*map(client, range(NUM_CLIENTS))))
