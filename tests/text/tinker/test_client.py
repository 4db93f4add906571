"""ludus's own client of Tinker's API: samples, trains, and goes on after a kill of either side."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.text.chat import ChatMessage, ChatRequest
from ludus.text.jobs import JobSpec
from ludus.text.provider import ProviderError, ProviderServices
from ludus.text.providers.tinker import TinkerConfig, TinkerProvider
from ludus.text.tinker.api import TinkerApi
from ludus.text.tinker.training import TinkerTraining
from ludus.text.training_client import (
    AdamStep,
    TrainingDatum,
    policy_gradient_datum,
    supervised_datum,
)
from tests.text.tinker.conftest import LocalServer

STEP = AdamStep(learning_rate=0.01)
ASKED = ChatRequest(
    model="tiny",
    messages=(ChatMessage("user", "hi"),),
    n=3,
    seed=5,
    max_tokens=4,
    temperature=1.0,
    top_p=1.0,
    logprobs=True,
)


def config_of(url: str, key: Path | None, **changes: Any) -> TinkerConfig:
    data = {
        "kind": "tinker",
        "url": url,
        "key": None if key is None else {"variable": None, "file": str(key)},
        "tokenizer": None,
        "new_models": {},
        "patience_seconds": 60.0,
    }
    return validate(TinkerConfig, data | changes, source="test")


@asynccontextmanager
async def opened(config: TinkerConfig) -> AsyncIterator[TinkerProvider]:
    provider = TinkerProvider(config, ProviderServices(directory=Path, seed=0))
    await provider.open()
    try:
        yield provider
    finally:
        await provider.close()


@pytest.fixture
def config(server: LocalServer, tmp_path: Path) -> TinkerConfig:
    key = tmp_path / "key"
    key.write_text(server.token)
    key.chmod(0o600)
    return config_of(server.url, key)


def run(config: TinkerConfig, deed: Callable[[TinkerProvider], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        async with opened(config) as provider:
            return await deed(provider)

    return asyncio.run(whole())


def test_samples_of_a_policy_train_it(config: TinkerConfig) -> None:
    async def deed(provider: TinkerProvider) -> list[float]:
        training = await provider.create_training("tiny", lora_rank=None, seed=0)
        prompt = training.encode(ASKED.messages)
        format_ = [supervised_datum(prompt, [ord(letter)]) for letter in "xy"]
        for _ in range(15):
            await training.forward_backward(format_, "cross_entropy")
            await training.optim_step(STEP)
        found = []
        for number in range(8):
            model = await training.save_weights_for_sampler(f"step-{number}")
            asked = replace(ASKED, model=model, n=32, max_tokens=1, seed=number)
            answer = await provider.chat(asked)
            assert answer.prompt_tokens == len(prompt)
            samples = [one.logprobs[0] for one in answer.choices if one.logprobs]
            scores = [float(one.token == ord("y")) for one in samples]
            found.append(sum(scores) / len(scores))
            datums = [
                policy_gradient_datum(prompt, [one.token], [one.logprob], advantage=score - 0.5)
                for one, score in zip(samples, scores, strict=True)
            ]
            output = await training.forward_backward(datums, "importance_sampling")
            ratios = [
                math.exp(one[-1] - s.logprob)
                for one, s in zip(output.logprobs, samples, strict=True)
            ]
            assert ratios == pytest.approx([1.0] * 32, rel=1e-4)
            assert (await training.optim_step(STEP))["grad_norm"] > 0
        return found

    rewards = run(config, deed)
    assert rewards[0] < 0.7
    assert rewards[-1] > 0.9


def test_answers_repeat_and_carry_their_tokens(config: TinkerConfig) -> None:
    async def deed(provider: TinkerProvider) -> Any:
        return await provider.chat(ASKED), await provider.chat(ASKED), await provider.models()

    first, second, models = run(config, deed)
    assert first == second
    assert first.completion_tokens == sum(len(one.logprobs) for one in first.choices)
    assert [one.id for one in models] == ["tiny"]


async def two_steps(training: TinkerTraining, between: Callable[[], Any]) -> tuple[Any, ...]:
    datum = supervised_datum(list(b"ab"), list(b"cd"))
    first = await training.forward_backward([datum], "cross_entropy")
    await training.optim_step(STEP)
    between()
    second = await training.forward_backward([datum], "cross_entropy")
    await training.optim_step(STEP)
    third = await training.forward_backward([datum], "cross_entropy")
    path = await training.save_state("end")
    return first, second, third, path.partition("/weights/")[2]


def test_a_trainer_that_resumes_sends_again_and_nothing_is_done_twice(config: TinkerConfig) -> None:
    async def deed(provider: TinkerProvider) -> Any:
        training = await provider.create_training("tiny", lora_rank=4, seed=1)
        checkpoint = training.state_dict()
        found = await two_steps(training, lambda: None)
        resumed = await provider.reopen_training("tiny")
        resumed.load_state_dict(checkpoint)
        return found, await two_steps(resumed, lambda: None), training.state_dict(), resumed

    found, again, state, resumed = run(config, deed)
    assert again == found
    assert resumed.state_dict() == state
    assert found[2].loss < found[1].loss < found[0].loss


def test_a_resumed_trainer_that_asks_otherwise_is_told(config: TinkerConfig) -> None:
    async def deed(provider: TinkerProvider) -> None:
        training = await provider.create_training("tiny", lora_rank=4, seed=1)
        checkpoint = training.state_dict()
        await two_steps(training, lambda: None)
        training.load_state_dict(checkpoint)
        await training.optim_step(STEP)

    with pytest.raises(ProviderError, match=r"seq_id 1 of .* was given to another request"):
        run(config, deed)


@pytest.mark.slow
def test_a_server_killed_between_two_requests_goes_on(
    config: TinkerConfig, server: LocalServer
) -> None:
    def kill() -> None:
        server.kill()
        server.start_again()

    async def deed(provider: TinkerProvider) -> Any:
        found = []
        for between in (lambda: None, kill):
            training = await provider.create_training("tiny", lora_rank=4, seed=1)
            found.append(await two_steps(training, between))
        return found

    unbroken, broken = run(config, deed)
    assert broken == unbroken


def test_a_large_batch_goes_out_in_several_requests(
    config: TinkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    datums = [supervised_datum(list(b"ab"), list(text)) for text in (b"c", b"de", b"fgh")]

    async def deed(provider: TinkerProvider) -> Any:
        found = []
        for most in (1024, 2):
            monkeypatch.setattr("ludus.text.tinker.training._MOST_DATUMS", most)
            training = await provider.create_training("tiny", lora_rank=4, seed=1)
            output = await training.forward_backward(datums, "cross_entropy")
            found.append((output.loss, [len(one) for one in output.logprobs]))
            found.append(((await training.optim_step(STEP))["grad_norm"], training.state_dict()))
        return found

    whole, step, parts, step_of_parts = run(config, deed)
    assert whole[1] == parts[1] == [2, 3, 4]
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    assert step_of_parts[0] == pytest.approx(step[0], rel=1e-5)
    assert (step[1]["num_requests"], step_of_parts[1]["num_requests"]) == (2, 3)


@asynccontextmanager
async def faulty_server(answers: list[tuple[int, object]]) -> AsyncIterator[str]:
    """Serve these answers, one after the other, whatever is asked; yield the address."""
    left = list(answers)

    async def answer(request: web.Request) -> web.Response:
        status, body = left.pop(0)
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
    assert not left


PROMISE = (200, {"request_id": "m:0"})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            [(503, {}), (429, {}), PROMISE, (408, {"type": "try_again"}), (200, {"model_id": "m"})],
            None,
        ),
        ([PROMISE, (200, {"type": "try_again"}), (502, {}), (200, {"model_id": "m"})], None),
        (
            [PROMISE, (200, {"error": "no room", "category": "server"})],
            "the Tinker server: no room",
        ),
        ([PROMISE, (410, {"detail": "gone"})], "gone"),
        ([(400, {"detail": "never"})], "never"),
    ],
)
def test_what_may_pass_is_asked_again_and_what_cannot_is_not(
    answers: list[tuple[int, object]], words: str | None
) -> None:
    async def deed() -> str:
        async with faulty_server(answers) as url:
            api = TinkerApi(url, None, patience_seconds=20.0)
            await api.open()
            try:
                return await api.create_model("s", 0, "tiny", lora_rank=None, seed=0)
            finally:
                await api.close()

    if words is None:
        assert asyncio.run(deed()) == "m"
    else:
        with pytest.raises(ProviderError, match=words):
            asyncio.run(deed())


def test_a_failed_request_uses_up_its_number(config: TinkerConfig) -> None:
    async def deed(provider: TinkerProvider) -> Any:
        training = await provider.create_training("tiny", lora_rank=4, seed=1)
        with pytest.raises(
            ProviderError, match="no optimizer step was taken: there is no gradient"
        ):
            await training.optim_step(STEP)
        await two_steps(training, lambda: None)
        return training.state_dict()["num_requests"]

    assert run(config, deed) == 7


def test_what_cannot_work_is_said_in_one_sentence(
    config: TinkerConfig, server: LocalServer, tmp_path: Path
) -> None:
    spec = JobSpec("tiny", "supervised", b"", {}, 0, "", "")
    wrong = tmp_path / "wrong"
    wrong.write_text("tml-wrong")
    wrong.chmod(0o600)
    other = tmp_path / "other"
    unreachable = config_of("http://127.0.0.1:9", None, patience_seconds=0.01)
    cases: list[tuple[TinkerConfig, Callable[[TinkerProvider], Awaitable[Any]], str]] = [
        (config, lambda one: one.create_job(spec), "no fine-tuning jobs"),
        (config, lambda one: one.chat(replace(ASKED, model="huge")), "no base model 'huge'"),
        (config, lambda one: one.chat(replace(ASKED, model="tinker://a/weights/b")), "no saved"),
        (config_of(server.url, wrong), lambda one: one.models(), "does not accept the key"),
        (unreachable, lambda one: one.models(), "cannot be reached"),
        (
            config.replace(tokenizer=str(other)),
            lambda one: one.chat(ASKED),
            "has no tokenizer_config.json on this machine",
        ),
    ]
    for given, deed, words in cases:
        with pytest.raises(ProviderError, match=words) as error:
            run(given, deed)
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="'url' is 'ftp://x'"):
        config_of("ftp://x", None)
    with pytest.raises(LudusError, match="3 tokens and 2 target_tokens"):
        TrainingDatum((1, 2, 3), (1, 2), {})
