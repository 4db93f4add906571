"""Limits of a server: requests and tokens a minute, requests at a time; and what waits when it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.server.settings import ServerSettings
from ludus.text.server.start import ServerHandle, start_server
from tests.text.server.asking import asked, error_of, lines

ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture
def limited(root: Path, forked_servers: None) -> Iterator[ServerHandle]:
    settings = ServerSettings(requests_per_minute=3, tokens_per_minute=2000, max_pending=1)
    with start_server(root, server=settings) as server:
        yield server


def test_answers_say_what_remains_and_429_when_to_come_back(limited: ServerHandle) -> None:
    with openai.OpenAI(base_url=limited.url, api_key=limited.token, max_retries=0) as client:
        raw = client.chat.completions.with_raw_response
        # The bias ends the sample at once, and most of what is reserved is given back.
        ending = {"max_tokens": 900, "logit_bias": {str(ByteTokenizer.end_of_message): 100}}
        first, second = (raw.create(**ASKED | ending) for _ in range(2))  # type: ignore[call-overload]
        assert first.headers["x-ratelimit-limit-requests"] == "3"
        assert first.headers["x-ratelimit-remaining-requests"] == "2"
        used = first.parse().usage.total_tokens + second.parse().usage.total_tokens
        assert used < 20
        assert 2000 - used <= int(second.headers["x-ratelimit-remaining-tokens"]) <= 2000
        assert second.headers["x-ratelimit-reset-requests"].endswith("s")
        with pytest.raises(openai.RateLimitError, match="Request too large") as caught:
            client.chat.completions.create(**ASKED | {"n": 100, "max_tokens": 100})  # type: ignore[call-overload]
        assert caught.value.type == "tokens"
        raw.create(**ASKED)  # type: ignore[call-overload]
        with pytest.raises(openai.RateLimitError, match="Please try again in") as caught:
            client.chat.completions.create(**ASKED)  # type: ignore[call-overload]
    assert (caught.value.type, caught.value.code) == ("requests", "rate_limit_exceeded")
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 21


def test_requests_over_those_at_a_time_are_refused(limited: ServerHandle) -> None:
    async def ask() -> tuple[int, Any, int]:
        url = f"{limited.url}/chat/completions"
        headers = {"Authorization": f"Bearer {limited.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            long = ASKED | {"stream": True, "n": 2, "max_tokens": 900, "temperature": 0}
            async with session.post(url, json=long) as first:
                await first.content.readany()
                async with session.post(url, json=ASKED) as second:
                    error = (await second.json())["error"]
                await first.read()
            async with session.post(url, json=ASKED) as third:
                return second.status, error, third.status

    status, error, later = asyncio.run(ask())
    assert (status, error["code"]) == (429, "too_many_requests")
    assert later == 200


def test_a_server_that_ends_answers_those_who_wait_for_a_job(
    root: Path, forked_servers: None
) -> None:
    server = start_server(root)
    files = {"file": ("a.jsonl", lines()), "purpose": (None, "fine-tune")}
    file = asked(server, "POST", "/files", files=files).json()
    body = {"model": "tiny", "training_file": file["id"], "hyperparameters": {"n_epochs": 1000}}
    path = "/fine_tuning/jobs/" + asked(server, "POST", "/fine_tuning/jobs", json=body).json()["id"]
    status = "validating_files"
    while status != "running":
        headers = {"Prefer": f"wait=30, status={status}"}
        status = asked(server, "GET", path, headers=headers).json()["status"]
    port = int(server.url.split(":")[2].removesuffix("/v1"))
    with socket.create_connection(("127.0.0.1", port)) as waiting:
        head = (
            f"GET /v1{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        )
        waiting.sendall(f"{head}Prefer: wait=60, status=running\r\n\r\n".encode())
        # Once a later request is answered, this one has come too.
        asked(server, "GET", path)
        server.close()
        with waiting.makefile("rb") as answer:
            found = answer.read()
    assert found.startswith(b"HTTP/1.1 200 OK")
    assert b'"status":"running"' in found


def test_jobs_are_filtered_by_metadata_or_by_having_none(server: ServerHandle) -> None:
    files = {"file": ("a.jsonl", b"broken"), "purpose": (None, "fine-tune")}
    file = asked(server, "POST", "/files", files=files).json()
    body = {"model": "tiny", "training_file": file["id"]}
    plain = asked(server, "POST", "/fine_tuning/jobs", json=body).json()["id"]
    body["metadata"] = {"a": "x y", "b": ""}
    own = asked(server, "POST", "/fine_tuning/jobs", json=body).json()["id"]

    def listed(query: str) -> list[str]:
        jobs = asked(server, "GET", f"/fine_tuning/jobs?limit=1000&{query}").json()["data"]
        return [job["id"] for job in jobs]

    assert listed("metadata[a]=x%20y&metadata[b]=") == [own]
    assert listed("metadata[a]=x") == []
    assert plain in listed("metadata=null")
    assert own not in listed("metadata=null")
    assert {plain, own} <= set(listed(""))
    error = error_of(asked(server, "GET", "/fine_tuning/jobs?metadata=x"))
    assert "metadata[key]=value" in error["message"]
