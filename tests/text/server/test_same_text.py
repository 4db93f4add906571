"""Same seed, same text: an answer depends on model, prompt, seed and parameters, never on the load."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
import pytest

from ludus.text.server.start import ServerHandle
from tests.text.server.asking import asked, lines

NUM_CLIENTS = 64


def requests() -> list[dict[str, Any]]:
    drawn = random.Random(0)
    return [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "word " * drawn.randint(0, 12) + str(number)}],
            "n": drawn.choice([1, 1, 2, 8]),
            "seed": number // 2,
            "max_tokens": drawn.randint(1, 10),
            "temperature": drawn.choice([0, 0.7, 1, 1.5]),
            "top_p": drawn.choice([1, 1, 0.9, 0]),
            "stop": drawn.choice([None, "a", ["b", "cd"]]),
            "frequency_penalty": drawn.choice([0, 0, 1.5]),
            "logprobs": True,
            "return_token_ids": True,
        }
        for number in range(NUM_CLIENTS)
    ]


async def answers(
    server: ServerHandle, bodies: list[dict[str, Any]], *, num_at_once: int
) -> list[Any]:
    """Return the choices of each request, in the order of the requests."""
    headers = {"Authorization": f"Bearer {server.token}"}
    gate = asyncio.Semaphore(num_at_once)
    async with aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=60),
    ) as session:

        async def one(body: dict[str, Any]) -> Any:
            url = f"{server.url}/chat/completions"
            async with gate, session.post(url, json=body) as response:
                assert response.status == 200, await response.text()
                return (await response.json())["choices"]

        return await asyncio.gather(*map(one, bodies))


def test_64_clients_in_any_order_get_what_each_gets_alone_while_a_job_runs(
    server: ServerHandle,
) -> None:
    bodies = requests()
    alone = asyncio.run(answers(server, bodies, num_at_once=1))
    files = {"file": ("a.jsonl", lines()), "purpose": (None, "fine-tune")}
    file = asked(server, "POST", "/files", files=files).json()
    job = {"model": "tiny", "training_file": file["id"], "hyperparameters": {"n_epochs": 1000}}
    path = "/fine_tuning/jobs"
    job_id = asked(server, "POST", path, json=job).json()["id"]
    status = "validating_files"
    while status != "running":
        headers = {"Prefer": f"wait=30, status={status}"}
        status = asked(server, "GET", f"{path}/{job_id}", headers=headers).json()["status"]
    for seed in range(2):
        order = list(range(len(bodies)))
        random.Random(seed).shuffle(order)
        shuffled = [bodies[number] for number in order]
        found = asyncio.run(answers(server, shuffled, num_at_once=NUM_CLIENTS))
        assert found == [alone[number] for number in order]
    assert asked(server, "POST", f"{path}/{job_id}/cancel").json()["status"] == "cancelled"


def test_sample_i_of_n_is_the_same_whatever_n_is(server: ServerHandle) -> None:
    body = requests()[3] | {"temperature": 1, "top_p": 1, "seed": 4}
    few, many = asyncio.run(answers(server, [body | {"n": 2}, body | {"n": 9}], num_at_once=2))
    assert many[:2] == few


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_the_model(server: ServerHandle, stream: bool) -> None:
    """Without this, 200 long requests that nobody waits for would take minutes."""

    async def leave() -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        body = requests()[0] | {"n": 64, "max_tokens": 900, "stop": None, "stream": stream}
        body |= {"logprobs": False, "return_token_ids": False}
        url = f"{server.url}/chat/completions"
        async with aiohttp.ClientSession(headers=headers) as session:

            async def one() -> None:
                async with session.post(url, json=body) as response:
                    await response.read()

            tasks = [asyncio.ensure_future(one()) for _ in range(200)]
            await asyncio.wait(tasks, timeout=0.5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(leave())
    (found,) = asyncio.run(answers(server, [requests()[0]], num_at_once=1))
    assert len(found) == requests()[0]["n"]
