"""The provider in_process: the engine of the server without HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ludus.config.sections import validate
from ludus.text.chat import ChatMessage, ChatRequest
from ludus.text.jobs import Job, JobSpec
from ludus.text.provider import ProviderError, ProviderServices
from ludus.text.providers.in_process import InProcess
from ludus.text.server.new_models import preset
from tests.text.server.asking import lines

T = TypeVar("T")
ASKED = ChatRequest("tiny", (ChatMessage("user", "Hi"),), 3, 5, 8, 1.0, 1.0, logprobs=True)
SPEC = JobSpec("tiny", "supervised", lines(), {"n_epochs": 1, "batch_size": 8}, 3, "s", "run 1")


def used(root: Path, use: Callable[[InProcess], Awaitable[T]]) -> T:
    """Return what a function makes of an open provider."""
    data = {
        "kind": "in_process", "new_models": {"tiny": preset("tiny").model_dump()}, "models": {},
        "max_rows": 64, "max_loaded_models": 2, "device": "cpu",
    }  # fmt: skip
    config = validate(InProcess.Config, data, source="the provider")

    async def run() -> T:
        provider = InProcess(config, ProviderServices(lambda: root, 0))
        await provider.open()
        try:
            return await use(provider)
        finally:
            await provider.close()

    return asyncio.run(run())


async def ended(provider: InProcess, job: Job) -> Job:
    while not job.has_ended:
        job = await provider.wait_for_change(job, 30)
    return job


def test_it_answers_like_a_provider_and_repeatably(tmp_path: Path) -> None:
    async def use(provider: InProcess) -> None:
        assert [(model.id, model.context) for model in await provider.models()] == [("tiny", 1024)]
        first, *others = await asyncio.gather(*(provider.chat(ASKED) for _ in range(20)))
        assert all(other == first for other in others)
        assert len(first.choices) == 3
        for choice in first.choices:
            assert choice.logprobs is not None
            assert len(choice.logprobs) == choice.num_tokens <= 8
        assert first.completion_tokens == sum(choice.num_tokens for choice in first.choices)
        again = dataclasses.replace(ASKED, seed=6)
        assert await provider.chat(again) != first

    used(tmp_path, use)


def test_a_job_is_created_once_and_its_model_answers(tmp_path: Path, forked_servers: None) -> None:
    async def use(provider: InProcess) -> Job:
        job = await provider.create_job(SPEC)
        assert job.key == SPEC.key
        assert (await provider.create_job(SPEC)).id == job.id
        assert [found.id for found in await provider.find_jobs(SPEC.key)] == [job.id]
        assert await provider.find_jobs("another") == []
        job = await ended(provider, job)
        assert job.status == "succeeded"
        assert job.fine_tuned_model is not None
        answer = await provider.chat(dataclasses.replace(ASKED, model=job.fine_tuned_model))
        assert len(answer.choices) == 3
        return job

    job = used(tmp_path, use)

    async def later(provider: InProcess) -> Job:
        return await provider.create_job(SPEC)

    assert used(tmp_path, later) == job


def test_a_wait_ends_with_a_change_or_in_time(tmp_path: Path, forked_servers: None) -> None:
    async def use(provider: InProcess) -> None:
        spec = dataclasses.replace(SPEC, hyperparameters={"n_epochs": 1000, "batch_size": 1})
        job = await provider.create_job(spec)
        while job.status == "pending":
            job = await provider.wait_for_change(job, 30)
        assert job.status == "running"
        assert (await provider.wait_for_change(job, 0.01)).status == "running"
        waiting = asyncio.ensure_future(provider.wait_for_change(job, 60))
        await asyncio.sleep(0)
        await provider.cancel_job(job.id)
        assert (await waiting).status == "cancelled"

    used(tmp_path, use)


def test_a_mistake_is_an_error_of_the_provider(tmp_path: Path) -> None:
    async def use(provider: InProcess) -> None:
        with pytest.raises(ProviderError, match="The model `none` does not exist") as caught:
            await provider.chat(dataclasses.replace(ASKED, model="none"))
        assert (caught.value.status, caught.value.code) == (404, "model_not_found")
        with pytest.raises(ProviderError, match="maximum context length") as caught:
            await provider.chat(
                dataclasses.replace(ASKED, messages=(ChatMessage("user", "a" * 2000),))
            )
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(ProviderError, match="The model `none`"):
            await provider.create_job(dataclasses.replace(SPEC, model="none"))
        with pytest.raises(ProviderError, match="Could not find fine tune"):
            await provider.job("ftjob-1")

    used(tmp_path, use)
    provider = InProcess(
        InProcess.Config(
            kind="in_process",
            new_models={},
            models={},
            max_rows=1,
            max_loaded_models=1,
            device="cpu",
        ),
        ProviderServices(lambda: tmp_path, 0),
    )
    with pytest.raises(ProviderError, match="is not open"):
        asyncio.run(provider.models())  # type: ignore[arg-type]
