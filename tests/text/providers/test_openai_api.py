"""What providers send and read, in the forms of OpenAI's API."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from ludus.config.registry import find, kinds
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.text.chat import ChatMessage, TokenLogprob
from ludus.text.client.http import HttpClient
from ludus.text.jobs import KEY_NAME
from ludus.text.provider import Provider, ProviderError
from ludus.text.providers._openai_api import read_answer
from ludus.text.providers.compatible import Compatible, CompatibleConfig
from ludus.text.providers.openai import Openai, OpenaiConfig
from tests.text.client.parts import KEY, client_config, openai, opened, request, services, spec
from tests.text.faulty_server import FaultyServer

KEY_SECTION = {"variable": "FAULTY_KEY", "file": None}


def compatible(url: str, *, takes_n: bool = True) -> Compatible:
    config = CompatibleConfig(kind="compatible", url=url, key=None, takes_n=takes_n)
    return Compatible(config, services())


def test_the_kinds_are_found_by_their_files() -> None:
    assert {"openai", "ludus_server", "fireworks", "together", "compatible"} <= {*kinds("provider")}
    for kind in kinds("provider"):
        assert issubclass(find("provider", kind), Provider)


def test_a_request_is_sent_whole_with_the_key() -> None:
    async def main() -> None:
        async with FaultyServer(key=KEY) as server, opened(openai(server.url)) as client:
            messages = (ChatMessage("system", "Be brief."), ChatMessage("user", 'ü "x"\n'))
            asked = request(messages=messages, n=2, stop=("\n",), logprobs=True, seed=2**62)
            await client.chat(asked, key="a", agent="solver", stage="sample")
            assert server.requests[0].body == {
                "model": "tiny",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": 'ü "x"\n'},
                ],
                "n": 2,
                "seed": 2**62,
                "max_completion_tokens": 8,
                "temperature": 1.0,
                "top_p": 1.0,
                "stop": ["\n"],
                "logprobs": True,
            }

    asyncio.run(main())


def test_connections_are_kept() -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            for number in range(5):
                one = request(f"{number}")
                await client.chat(one, key=f"{number}", agent="solver", stage="sample")
            assert len(server._tasks) == 1

    asyncio.run(main())


def test_choices_are_read_in_their_order_with_what_the_server_tells() -> None:
    body = {
        "choices": [
            {
                "index": 1,
                "message": {"content": None, "refusal": "No."},
                "finish_reason": "content_filter",
            },
            {
                "index": 0,
                "message": {"content": "ab"},
                "finish_reason": "function_call",
                "token_ids": [5, 6],
                "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1}]},
            },
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }
    answer = read_answer(body, request(n=2), name="x")
    first, second = answer.choices
    assert (first.text, first.finish_reason, first.num_tokens) == ("ab", "stop", 2)
    assert first.logprobs == (TokenLogprob(5, -0.5), TokenLogprob(6, -1.0))
    assert (second.text, second.finish_reason, second.num_tokens) == ("No.", "content_filter", 3)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (7, 5, 2)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": "x"}]},
        {"choices": [1]},
        {"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]},
        {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{}]}}]},
    ],
)
def test_an_answer_that_is_none_is_an_error_that_may_pass(body: Any) -> None:
    with pytest.raises(ProviderError, match="cannot be used") as raised:
        read_answer(body, request(), name="x")
    assert raised.value.is_transient


def test_a_server_that_does_not_take_n_is_asked_for_each_sample_with_a_seed_of_its_own() -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            server.answer = lambda body, index: str(body["seed"])
            seeds = []
            for _ in range(2):
                async with opened(compatible(server.url, takes_n=False)) as client:
                    asked = request(n=4, seed=2**60)
                    answer = await client.chat(asked, key="a", agent="solver", stage="sample")
                    seeds.append([choice.text for choice in answer.choices])
                    assert answer.prompt_tokens == 40
            assert seeds[0] == seeds[1]
            assert len({*seeds[0]}) == 4
            assert all(0 <= int(seed) < 2**31 for seed in seeds[0])
            assert {one.body["n"] for one in server.requests} == {1}
            assert "authorization" not in server.requests[0].headers

    asyncio.run(main())


def test_a_provider_without_jobs_says_which_have_them() -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(compatible(server.url)) as client:
            with pytest.raises(LudusError, match="samples and does not tune; use ludus_server"):
                await client.ensure_job(spec(), agent="solver", stage="jobs")
            assert server.requests == []

    asyncio.run(main())


@pytest.mark.parametrize("method", ["supervised", "dpo"])
def test_a_job_is_created_with_its_key_and_file(method: Any) -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            one = spec(method=method, suffix="s" * 80, seed=2**40 + 5)
            await client.ensure_job(one, agent="solver", stage="jobs")
            assert server.asked("/fine_tuning/jobs")[0].body == {
                "model": "tiny",
                "training_file": "file-0",
                "method": {"type": method, method: {"hyperparameters": {"n_epochs": 2}}},
                "seed": 5,
                "suffix": "s" * 64,
                "metadata": {KEY_NAME: one.key},
            }

    asyncio.run(main())


def test_models_that_are_missing_or_shut_down_soon_are_told_before_work() -> None:
    def day(days: int) -> str:
        today = datetime.datetime.now(datetime.UTC).date()
        return (today + datetime.timedelta(days=days)).isoformat()

    async def main() -> None:
        async with FaultyServer() as server:
            server.models = [
                {"id": "old", "shutdown_date": day(-3)},
                {"id": "soon", "shutdown_date": day(10)},
                {"id": "later", "shutdown_date": day(31)},
                {"id": "tiny", "shutdown_date": None},
                {"id": "odd", "shutdown_date": "some day"},
            ]
            async with opened(openai(server.url)) as client:
                await client.check_models(["later", "tiny", "odd", "tiny"])
                with pytest.raises(LudusError, match=rf"'soon' is shut down on {day(10)}, 10 days"):
                    await client.check_models(["tiny", "soon"])
                with pytest.raises(LudusError, match="'old' is shut down"):
                    await client.check_models(["old"])
                with pytest.raises(LudusError, match=r"no model 'tinny'. Did you mean 'tiny'\?"):
                    await client.check_models(["tinny"])
            async with opened(openai(server.url), config=client_config(model_days=5)) as client:
                await client.check_models(["soon"])

    asyncio.run(main())


def test_a_redirect_is_not_followed() -> None:
    async def main() -> None:
        async with FaultyServer() as other, FaultyServer() as server:
            server.fault = lambda request: f"307 location={other.url}/chat/completions"
            async with opened(openai(server.url)) as client:
                with pytest.raises(ProviderError, match="redirects elsewhere"):
                    await client.chat(request(), key="a", agent="solver", stage="sample")
            assert other.requests == []

    asyncio.run(main())


def test_a_server_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")

    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            await client.chat(request(), key="a", agent="solver", stage="sample")

    asyncio.run(main())
    for url, proxy in (
        ("https://api.openai.com/v1", "http://proxy:3128"),
        ("https://inside.example/v1", None),
        ("http://localhost:8000/v1", None),
        ("http://[::1]:8000/v1", None),
    ):
        assert HttpClient(url, None, name="x")._proxy == proxy


def test_mistakes_in_the_section_are_told() -> None:
    data = {"kind": "openai", "url": "api.openai.com", "key": KEY_SECTION}
    with pytest.raises(ConfigError, match="give one such as https://api"):
        validate(OpenaiConfig, data, source="x")
    with pytest.raises(ConfigError, match="'key'"):
        validate(OpenaiConfig, {**data, "key": None}, source="x")


def test_the_http_library_is_loaded_by_the_first_connection_alone() -> None:
    code = (
        "import sys, json\n"
        "from ludus.config.registry import find, kinds\n"
        "import ludus.text.client.client\n"
        "for kind in ('openai', 'ludus_server', 'fireworks', 'together', 'compatible'):\n"
        "    find('provider', kind)\n"
        "print(json.dumps([n for n in ('aiohttp', 'orjson', 'torch', 'openai') if n in sys.modules]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=dict(os.environ)
    )
    assert json.loads(found.stdout) == []


def test_the_openai_provider_uses_the_newer_name_of_the_limit() -> None:
    assert Openai.completion_limit == "max_completion_tokens"
    assert Compatible.completion_limit == "max_tokens"
