"""Waiting for jobs: woken where the provider can wake, bounded, and every status ends it or is waited for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ludus.core.errors import Interrupted, LudusError
from ludus.text.client.job_waiting import JobsLate, JobWaiting, check_success
from ludus.text.jobs import Job
from ludus.text.provider import Provider
from tests.text.client.parts import client_config, openai, opened, spec
from tests.text.client.test_job_creation import Simulated
from tests.text.faulty_server import FaultyServer


class Timed(Simulated):
    """A provider whose jobs change at given times of a simulated clock."""

    def __init__(self, changes: dict[str, list[tuple[float, str]]]) -> None:
        super().__init__(None, lag=0.0)  # type: ignore[arg-type]
        self.changes, self.looks = changes, list[float]()

    async def job(self, job_id: str) -> Job:
        self.looks.append(self.now)
        status = "pending"
        for at, later in self.changes[job_id]:
            status = later if self.now >= at else status
        return Job(job_id, status, "tiny", None)  # type: ignore[arg-type]


class Woken(Timed):
    """One that waits on the server's side."""

    async def wait_for_change(self, job: Job, timeout: float) -> Job:
        ahead = [at for at, _ in self.changes[job.id] if at > self.now]
        self.now = min([self.now + timeout, *ahead])
        return await self.job(job.id)


def wait(provider: Timed, *, deadline: float = 1e6) -> tuple[list[Job], list[list[str]]]:
    """Wait for all jobs of a simulated provider; return them, and every progress."""
    seen: list[list[str]] = []

    async def repeated(once: Callable[[], Awaitable[Any]]) -> Any:
        return await once()

    async def sleep(seconds: float) -> None:
        provider.now += seconds
        await asyncio.sleep(0)

    def progress(jobs: Sequence[Job]) -> None:
        seen.append([job.status for job in jobs])

    async def main() -> list[Job]:
        waiting = JobWaiting(
            provider,
            deadline_seconds=deadline,
            longest_call=20.0,
            repeated=repeated,
            on_progress=progress,
            clock=lambda: provider.now,
            sleep=sleep,
        )
        jobs = [Job(name, "pending", "tiny", None) for name in provider.changes]
        return await waiting.all(jobs)

    return asyncio.run(main()), seen


@pytest.mark.covers("002-D2")
@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_every_status_that_is_an_end_ends_the_wait(status: str) -> None:
    ended, seen = wait(Timed({"a": [(100.0, "running"), (500.0, status)]}))
    assert [job.status for job in ended] == [status]
    assert seen == [["pending"], ["running"], [status]]


def test_a_job_that_pauses_and_one_of_an_unknown_status_are_waited_for() -> None:
    ended, seen = wait(
        Timed(
            {"a": [(5.0, "paused"), (50.0, "running"), (90.0, "succeeded")], "b": [(1.0, "failed")]}
        )
    )
    assert [job.status for job in ended] == ["succeeded", "failed"]
    assert ["paused", "failed"] in seen


def test_a_provider_that_cannot_wake_is_asked_after_one_second_and_then_less_and_less() -> None:
    provider = Timed({"a": [(300.0, "succeeded")]})
    wait(provider)
    gaps = [later - sooner for sooner, later in itertools.pairwise(provider.looks)]
    assert provider.looks[0] == 1.0
    assert max(gaps) == 30.0
    assert all(later >= sooner for sooner, later in itertools.pairwise(gaps))
    # Once a second would be 300.
    assert len(provider.looks) < 20


def test_a_provider_that_wakes_is_asked_as_often_as_something_changes() -> None:
    provider = Woken({"a": [(7.0, "running"), (15.0, "succeeded")]})
    ended, _ = wait(provider)
    assert provider.looks == [7.0, 15.0]
    assert ended[0].status == "succeeded"


def test_a_server_that_wakes_with_nothing_new_is_not_asked_in_a_circle() -> None:
    class Hasty(Timed):
        async def wait_for_change(self, job: Job, timeout: float) -> Job:
            return await self.job(job.id)

    provider = Hasty({"a": [(300.0, "succeeded")]})
    wait(provider)
    assert len(provider.looks) < 20


@pytest.mark.parametrize("kind", [Timed, Woken])
def test_the_deadline_ends_the_wait_with_the_names_of_what_is_late(kind: type[Timed]) -> None:
    with pytest.raises(JobsLate, match=r"b \(running\) did not end within 60 s") as raised:
        wait(kind({"a": [(1.0, "succeeded")], "b": [(2.0, "running")]}), deadline=60.0)
    assert "a (" not in str(raised.value)
    assert "a resume waits for them again" in str(raised.value)


def test_the_error_of_a_failed_job_is_shown_whole() -> None:
    async def main() -> None:
        async with FaultyServer(final_status="failed", steps_to_end=1) as server:
            async with opened(openai(server.url)) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                ended = await client.wait_for_jobs([job], on_progress=lambda jobs: None)
                assert ended[0].error == "line 3: no messages\nand more"
                # A failed job is not charged for.
                assert client.ledger.spent.cost == 0
                with pytest.raises(
                    LudusError, match=r"1 of 1 .* did not succeed: ftjob-0 for tiny failed:"
                ):
                    check_success(ended)

    asyncio.run(main())
    check_success([Job("a", "succeeded", "tiny", None)])
    with pytest.raises(LudusError, match="a for tiny was cancelled"):
        check_success([Job("a", "cancelled", "tiny", None), Job("b", "succeeded", "tiny", None)])


@pytest.mark.parametrize("status", ["pausing", "paused", "resting", ""])
def test_a_status_of_a_server_that_no_one_knows_counts_as_not_ended(status: str) -> None:
    async def main() -> None:
        async with FaultyServer(steps_to_end=1) as server, opened(openai(server.url)) as client:
            job = await client.ensure_job(spec(), agent="solver", stage="jobs")
            server.jobs[0]["status"] = status
            seen = await client.provider.job(job.id)
            assert seen.status == ("paused" if status.startswith("paus") else "pending")
            assert not seen.has_ended

    asyncio.run(main())


def test_an_interrupt_ends_the_wait() -> None:
    interrupted: list[bool] = []

    async def main() -> None:
        async with FaultyServer(steps_to_end=10**6) as server:
            ended = lambda: bool(interrupted)  # noqa: E731
            async with opened(openai(server.url), is_interrupted=ended) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                asyncio.get_running_loop().call_later(0.05, interrupted.append, True)
                with pytest.raises(Interrupted):
                    await client.wait_for_jobs([job], on_progress=lambda jobs: None)

    asyncio.run(main())


def test_a_job_that_disappeared_is_an_error_and_the_deadline_is_a_setting() -> None:
    async def main() -> None:
        async with FaultyServer(steps_to_end=10**6) as server:
            config = client_config(job_deadline_seconds=0.2)
            async with opened(openai(server.url), config=config) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                with pytest.raises(JobsLate):
                    await client.wait_for_jobs([job], on_progress=lambda jobs: None)
            async with opened(openai(server.url)) as client:
                server.jobs.clear()
                with pytest.raises(
                    LudusError, match="refused the request with 404: no job ftjob-0"
                ):
                    await client.wait_for_jobs([job], on_progress=lambda jobs: None)

    asyncio.run(main())


def test_providers_are_woken_only_if_they_say_how() -> None:
    assert Timed.wait_for_change is Provider.wait_for_change
