"""The official client of OpenAI works against the server, synchronous, asynchronous and streaming."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from ludus.text.server.start import ServerHandle
from tests.text.server.asking import lines

SAID: Any = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hällo"}]


@pytest.fixture(scope="module")
def client(server: ServerHandle) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url, api_key=server.token, max_retries=0) as opened:
        yield opened


def test_the_models_are_listed_and_looked_up(client: openai.OpenAI) -> None:
    assert "tiny" in [model.id for model in client.models.list()]
    model = client.models.retrieve("tiny")
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "ludus")
    assert model.context_length == 1024  # type: ignore[attr-defined]
    assert abs(model.created - time.time()) < 86400


def test_a_chat_completion_has_all_that_was_asked_for(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="tiny", messages=SAID, n=3, seed=7, max_completion_tokens=9, logprobs=True,
        top_logprobs=2, extra_body={"return_token_ids": True},
    )  # fmt: skip
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert found.object == "chat.completion"
    assert found.system_fingerprint is not None
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    total = 0
    for choice in found.choices:
        assert choice.finish_reason in ("stop", "length")
        assert choice.message.role == "assistant"
        assert choice.logprobs is not None
        content = choice.logprobs.content
        assert content is not None
        token_ids = choice.token_ids  # type: ignore[attr-defined]
        assert len(content) == len(token_ids) <= 9
        total += len(token_ids)
        for one, token in zip(content, token_ids, strict=True):
            assert one.bytes == ([token] if token < 256 else [])
            assert len(one.top_logprobs) == 2
            assert one.top_logprobs[0].logprob >= one.logprob
    assert total == found.usage.completion_tokens


def test_the_same_seed_gets_the_same_text_and_another_another(client: openai.OpenAI) -> None:
    def texts(**more: Any) -> list[str | None]:
        found = client.chat.completions.create(
            model="tiny", messages=SAID, n=4, max_tokens=12, **more
        )
        return [choice.message.content for choice in found.choices]

    assert texts(seed=1) == texts(seed=1)
    assert texts(seed=-1) == texts(seed=-1)
    assert len({tuple(texts(seed=1)), tuple(texts(seed=2)), tuple(texts()), tuple(texts())}) == 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_is_the_same_answer_in_pieces(
    client: openai.OpenAI, server: ServerHandle, asynchronous: bool
) -> None:
    asked: dict[str, Any] = {
        "model": "tiny", "messages": SAID, "n": 2, "seed": 3, "max_tokens": 40, "stop": ["a", "zz"],
        "logprobs": True,
    }  # fmt: skip
    whole = client.chat.completions.create(**asked)
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    if asynchronous:
        chunks = asyncio.run(_streamed(server, asked))
    else:
        chunks = list(client.chat.completions.create(**asked))
    for choice in whole.choices:
        parts = [one for chunk in chunks for one in chunk.choices if one.index == choice.index]
        assert parts[0].delta.role == "assistant"
        assert "".join(part.delta.content or "" for part in parts) == choice.message.content
        reasons = [part.finish_reason for part in parts]
        assert reasons == [None] * (len(parts) - 1) + [choice.finish_reason]
        tokens = [one for part in parts if part.logprobs for one in part.logprobs.content]
        assert choice.logprobs is not None
        assert tokens == choice.logprobs.content
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].choices == []
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


async def _streamed(server: ServerHandle, asked: dict[str, Any]) -> list[Any]:
    async with openai.AsyncOpenAI(base_url=server.url, api_key=server.token) as client:
        return [chunk async for chunk in await client.chat.completions.create(**asked)]


def test_a_stream_that_cannot_begin_is_an_ordinary_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "a" * 2000}], stream=True
        )
    assert caught.value.code == "context_length_exceeded"


def test_files_are_uploaded_listed_read_and_deleted(client: openai.OpenAI) -> None:
    file = client.files.create(file=("words.jsonl", lines()), purpose="fine-tune")
    assert (file.filename, file.bytes, file.status) == ("words.jsonl", len(lines()), "processed")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == lines()
    assert file.id in [one.id for one in client.files.list(purpose="fine-tune", limit=1)]
    assert file.id not in [one.id for one in client.files.list(purpose="batch")]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_a_job_runs_and_its_model_answers_and_is_deleted(client: openai.OpenAI) -> None:
    file = client.files.create(file=("words.jsonl", lines()), purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model="tiny", training_file=file.id, validation_file=file.id, suffix="words", seed=3,
        method={
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": 2, "batch_size": 12}},
        },
        metadata={"ludus_key": "of this test", "kind": "x"},
    )  # fmt: skip
    assert (job.status, job.seed, job.hyperparameters.n_epochs) == ("validating_files", 3, 2)
    statuses = [job.status]
    while statuses[-1] not in ("succeeded", "failed", "cancelled"):
        headers = {"Prefer": f"wait=30.500, status={statuses[-1]}"}
        job = client.fine_tuning.jobs.retrieve(job.id, extra_headers=headers)
        statuses.append(job.status)
    assert statuses[-1] == "succeeded"
    # Each wait has ended with a change.
    assert len(statuses) == len(set(statuses))
    assert job.method is not None
    assert job.method.type == "supervised"
    assert job.hyperparameters.learning_rate_multiplier == 1.0
    assert job.finished_at is not None
    filters = {"metadata[ludus_key]": "of this test", "metadata[kind]": "x"}
    assert [one.id for one in client.fine_tuning.jobs.list(extra_query=filters)] == [job.id]
    filters["metadata[kind]"] = "y"
    assert list(client.fine_tuning.jobs.list(extra_query=filters)) == []
    events = list(client.fine_tuning.jobs.list_events(job.id, limit=2))
    assert events[0].message == "The job has successfully completed"
    assert len(events) == len({event.id for event in events}) == 11
    metrics = [event.data for event in events if event.type == "metrics"]
    assert any("full_valid_loss" in json.dumps(one) for one in metrics)
    (checkpoint,) = client.fine_tuning.jobs.checkpoints.list(job.id)
    name = job.fine_tuned_model
    assert name is not None
    assert checkpoint.fine_tuned_model_checkpoint == name
    answer = client.chat.completions.create(model=name, messages=SAID, max_tokens=3)
    assert answer.model == name
    assert client.models.retrieve(name).id == name
    assert client.models.delete(name).deleted
    for gone in (
        lambda: client.models.retrieve(name),
        lambda: client.chat.completions.create(model=name, messages=SAID),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            gone()
        assert caught.value.code == "model_not_found"


def test_jobs_are_listed_page_by_page_the_newest_first(client: openai.OpenAI) -> None:
    file = client.files.create(file=("words.jsonl", b"broken"), purpose="fine-tune")
    made = [
        client.fine_tuning.jobs.create(
            model="tiny", training_file=file.id, metadata={"page": "yes"}
        ).id
        for _ in range(5)
    ]
    page = client.fine_tuning.jobs.list(limit=2, extra_query={"metadata[page]": "yes"})
    assert page.has_more
    assert [job.id for job in page] == made[::-1]


def test_a_job_is_paused_resumed_and_cancelled(client: openai.OpenAI) -> None:
    file = client.files.create(file=("words.jsonl", lines()), purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model="tiny", training_file=file.id, hyperparameters={"n_epochs": 1000, "batch_size": 1}
    )
    jobs = client.fine_tuning.jobs

    def once(*statuses: str) -> str:
        """Return the status of the job once it is none of these."""
        status = statuses[0]
        while status in statuses:
            headers = {"Prefer": f"wait=30, status={status}"}
            status = jobs.retrieve(job.id, extra_headers=headers).status
        return status

    assert once("validating_files", "queued") == "running"
    assert jobs.pause(job.id).status in ("pausing", "paused")
    assert once("pausing") == "paused"
    assert jobs.resume(job.id).status in ("queued", "running")
    assert once("queued") == "running"
    assert jobs.cancel(job.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="has the status cancelled"):
        jobs.resume(job.id)


def test_a_wrong_key_is_an_authentication_error(server: ServerHandle) -> None:
    with openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
    assert caught.value.code == "invalid_api_key"
    assert caught.value.request_id
