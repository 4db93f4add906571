"""Fine-tuning jobs: one for each key, whatever fails and whenever the process is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import LudusError
from ludus.core.services import MemoryJournal
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.client.job_creation import JobCreation
from ludus.text.client.spending import NOTHING, Payer
from ludus.text.jobs import Job, JobSpec
from ludus.text.provider import ModelInfo, Provider, ProviderConfig, ProviderError
from tests.text.client.parts import client_config, openai, opened, retry, services, spec
from tests.text.faulty_server import FaultyServer, Request

PAYER = Payer("solver", "jobs", "tiny")
POSTS = "/fine_tuning/jobs"


class Killed(BaseException):
    """The process was killed."""


class Simulated(Provider):
    """A provider in simulated time: its answers get lost, its list lags, its filter may be ignored."""

    def __init__(self, generator: random.Random, *, lag: float, can_list: bool = True) -> None:
        super().__init__(ProviderConfig(kind="simulated"), services())
        self.random, self.lag, self.now = generator, lag, 0.0
        self.can_list_jobs = can_list  # type: ignore[misc]
        self.jobs: list[tuple[float, Job]] = []
        self.kill_at = -1
        self.steps = 0

    def step(self) -> None:
        """A point at which the process may be killed."""
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def fail(self, *, is_known: bool) -> None:
        if self.random.random() < 0.3:
            raise ProviderError("lost", is_transient=True, is_known=is_known)

    async def models(self) -> Sequence[ModelInfo]:
        return []

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        raise NotImplementedError

    async def create_job(self, spec: JobSpec) -> Job:
        self.step()
        self.now += self.random.uniform(0, 2)
        self.fail(is_known=True)
        # It never arrived, which looks the same from here as an answer that got lost.
        self.fail(is_known=False)
        job = Job(f"job-{len(self.jobs)}", "pending", spec.model, spec.key)
        self.jobs.append((self.now, job))
        self.step()
        self.fail(is_known=False)
        return job

    async def find_jobs(self, key: str) -> list[Job]:
        self.step()
        self.fail(is_known=True)
        strangers = [Job("job-x", "running", "tiny", None), Job("job-y", "running", "tiny", "k")]
        return [job for made, job in self.jobs if self.now - made >= self.lag] + strangers

    async def job(self, job_id: str) -> Job:
        self.step()
        return next(job for _, job in self.jobs if job.id == job_id)

    async def cancel_job(self, job_id: str) -> Job:
        raise NotImplementedError


class KilledJournal(MemoryJournal):
    """A journal that outlives the process; a kill may come before or after each record."""

    provider: Simulated

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        self.provider.step()
        super().put(key, record)
        self.provider.step()


def simulate(seed: int, *, lag: float, settle: float, can_list: bool = True) -> tuple[int, int]:
    """Create one job through kills and faults; return the number of jobs, and of questions to a person."""
    generator = random.Random(seed)
    provider = Simulated(generator, lag=lag, can_list=can_list)
    journal = KilledJournal("jobs")
    journal.provider = provider
    questions = 0

    async def repeated(once: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await once()
            except ProviderError:
                provider.now += 0.1

    async def once(send: Callable[[], Awaitable[Any]]) -> Any:
        return await send()

    async def backoff(attempt: int, error: ProviderError) -> None:
        provider.now += generator.uniform(0, 1)

    async def sleep(seconds: float) -> None:
        provider.step()
        provider.now += seconds

    for life in range(6):
        provider.steps = 0
        provider.kill_at = generator.choice([-1, *range(1, 16)]) if life < 5 else -1
        creation = JobCreation(
            provider,
            journal,
            settle_seconds=settle,
            repeated=repeated,
            once=once,
            backoff=backoff,
            tell=lambda text, event=None: None,
            clock=lambda: provider.now,
            sleep=sleep,
        )
        coroutine = creation.ensure(spec(), payer=PAYER, worst=NOTHING)
        # Nothing in it waits for a real event, so it ends at the first step.
        with contextlib.suppress(StopIteration, Killed):
            try:
                coroutine.send(None)
            except LudusError:
                questions += 1
    return len(provider.jobs), questions


@pytest.mark.covers("002-D3")
@pytest.mark.parametrize("lag", [0.0, 3.0, 9.9])
def test_there_is_one_job_whatever_fails_if_the_settle_time_covers_the_lag(lag: float) -> None:
    assert {simulate(seed, lag=lag, settle=10.0) for seed in range(700)} == {(1, 0)}


def test_the_simulation_would_find_a_second_job() -> None:
    found = [simulate(seed, lag=20.0, settle=5.0)[0] for seed in range(300)]
    assert max(found) > 1


def test_a_provider_that_cannot_list_leaves_it_to_a_person() -> None:
    found = [simulate(seed, lag=0.0, settle=0.0, can_list=False) for seed in range(500)]
    assert max(jobs for jobs, _ in found) == 1
    assert sum(questions for _, questions in found) > 150


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_there_is_one_job_in_twenty_thousand_scenarios(part: int) -> None:
    for seed in range(2000 * part, 2000 * (part + 1)):
        assert simulate(seed, lag=random.Random(seed).uniform(0, 9.9), settle=10.0)[0] <= 1


def create(
    fault: Callable[[Request], str | None], *, folder: Path | None = None, **server_keys: Any
) -> FaultyServer:
    """Create a job at a real server with faults, twice; return the server."""

    async def main() -> FaultyServer:
        async with FaultyServer(fault=fault, **server_keys) as server:
            config = client_config(settle_seconds=3.0, timeout_seconds=0.5, retry=retry())
            async with opened(openai(server.url), folder, config=config) as client:
                client._creation._sleep = lambda seconds: asyncio.sleep(0)  # type: ignore[assignment,return-value]
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                again = await client.ensure_job(spec(), agent="solver", stage="jobs")
                assert job.id == again.id == "ftjob-0"
            return server

    return asyncio.run(main())


def posts(fault: str) -> Callable[[Request], str | None]:
    """Return a fault that strikes the first creation alone."""
    faults = iter([fault])

    def strike(request: Request) -> str | None:
        is_creation = (request.method, request.path) == ("POST", f"/v1{POSTS}")
        return next(faults, None) if is_creation else None

    return strike


@pytest.mark.parametrize("fault", ["after", "cut", "short", "garbage"])
@pytest.mark.parametrize("list_lag", [0, 3])
def test_a_creation_that_was_accepted_is_found_and_not_repeated(fault: str, list_lag: int) -> None:
    # One list shows before the creation that there is none.
    server = create(posts(fault), list_lag=list_lag)
    assert len(server.jobs) == len(server.asked(POSTS)) == 1


@pytest.mark.parametrize("fault", ["429 retry-after-ms=1", "400 x=1"])
def test_a_creation_that_was_refused_is_repeated_or_raised_without_looking(fault: str) -> None:
    if fault.startswith("400"):
        with pytest.raises(ProviderError, match="refused the request with 400"):
            create(posts(fault))
        return
    server = create(posts(fault))
    assert (len(server.jobs), len(server.asked(POSTS))) == (1, 2)
    assert len(server.asked(POSTS, "GET")) == 1


@pytest.mark.parametrize("fault", ["before", "500"])
def test_a_creation_that_was_lost_on_its_way_is_repeated_after_the_settle_time(fault: str) -> None:
    async def main() -> None:
        async with FaultyServer(fault=posts(fault)) as server:
            config = client_config(settle_seconds=0.1)
            async with opened(openai(server.url), config=config) as client:
                await client.ensure_job(spec(), agent="solver", stage="jobs")
            assert (len(server.jobs), len(server.asked(POSTS))) == (1, 2)
            # Before the creation, at once after it, and at the end of the settle time.
            assert len(server.asked(POSTS, "GET")) >= 3

    asyncio.run(main())


def test_a_server_that_ignores_the_filter_and_sends_pages_is_searched_to_the_end() -> None:
    async def main() -> None:
        async with FaultyServer(ignores_filter=True, page=2) as server:
            for number in range(5):
                server._create({"model": "other", "metadata": {"ludus_key": f"{number}"}})
            server._create({"model": "other", "metadata": None})
            provider = openai(server.url)
            async with opened(provider) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                assert job.id == "ftjob-6"
                assert [one.id for one in await provider.find_jobs(spec().key)] == ["ftjob-6"]

    asyncio.run(main())


def test_of_several_jobs_the_oldest_is_used_and_the_others_are_told() -> None:
    told: list[str] = []

    async def main() -> None:
        async with FaultyServer() as server:
            for _ in range(3):
                server._create({"model": "tiny", "metadata": {"ludus_key": spec().key}})
            tell = lambda text, event=None: told.append(text)  # noqa: E731
            async with opened(openai(server.url), tell=tell) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                assert job.id == "ftjob-0"
            assert server.asked(POSTS) == []

    asyncio.run(main())
    assert "there are 3 jobs" in told[0]
    assert "cancel the others" in told[0]


def test_an_intent_is_looked_for_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            async with opened(openai(server.url), tmp_path) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
            # The process was killed between the request and the record of its answer.
            journal = tmp_path / "journals" / "jobs.jsonl"
            lines = journal.read_text().splitlines(keepends=True)
            assert [json.loads(line)["record"]["state"] for line in lines] == ["wanted", "created"]
            journal.write_text(lines[0])
            async with opened(openai(server.url), tmp_path) as client:
                assert client.ledger.spent.training_tokens > 0
                again = await client.ensure_job(spec(), agent="solver", stage="jobs")
            assert again.id == job.id
            assert len(server.asked(POSTS)) == 1

    asyncio.run(main())


def test_an_earlier_job_that_came_to_nothing_is_not_taken_for_a_new_run() -> None:
    async def main() -> None:
        async with FaultyServer(final_status="failed") as server:
            server._create({"model": "tiny", "metadata": {"ludus_key": spec().key}})
            server.jobs[0]["status"] = "cancelled"
            async with opened(openai(server.url)) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                assert job.id == "ftjob-1"

    asyncio.run(main())


def test_a_training_file_is_uploaded_once_by_its_content() -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            for scope in ("a", "b"):
                await client.ensure_job(spec(scope), agent="solver", stage="jobs")
            await client.ensure_job(spec(lines=b'{"a": 1}\n' * 10), agent="s", stage="jobs")
            assert [file["bytes"] for file in server.files] == [len(spec().lines), 90]
            assert len(server.jobs) == 3

    asyncio.run(main())


def test_an_upload_that_fails_leaves_no_question_whether_there_is_a_job() -> None:
    faults = iter(["after", "500"])

    def fault(request: Request) -> str | None:
        is_upload = request.method == "POST" and request.path == "/v1/files"
        return next(faults, None) if is_upload else None

    server = create(fault)
    assert len(server.asked(POSTS)) == 1
    # Only the look before the first creation.
    assert len(server.asked(POSTS, "GET")) == 1


def test_a_file_below_the_least_number_of_examples_is_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url)) as client:
            small = spec(lines=b"{}\n" * 9)
            with pytest.raises(
                LudusError, match="has 9 examples, and the provider 'openai' takes 10"
            ):
                await client.ensure_job(small, agent="solver", stage="jobs")
            assert server.requests == []

    asyncio.run(main())
