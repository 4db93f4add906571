"""Wait for fine-tuning jobs until all have ended, woken by the provider where it can wake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ludus.core.errors import LudusError
from ludus.text.client.job_creation import Repeats
from ludus.text.jobs import Job
from ludus.text.provider import Provider

OnProgress = Callable[[Sequence[Job]], None]
_FIRST_LOOK, _LAST_LOOK = 1.0, 30.0
_LONGEST_CALL = 25.0


class JobsLate(LudusError):
    """Fine-tuning jobs did not end in time."""


class JobWaiting:
    """Watches the jobs of one call, each on its own."""

    def __init__(
        self,
        provider: Provider,
        *,
        deadline_seconds: float,
        longest_call: float,
        repeated: Repeats,
        on_progress: OnProgress,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_progress` is given all jobs, in order, each time that one of them has changed."""
        self._provider, self._repeated, self._on_progress = provider, repeated, on_progress
        self._deadline, self._longest_call = deadline_seconds, min(longest_call, _LONGEST_CALL)
        self._clock, self._sleep = clock, sleep
        # A provider that does not override it would only be asked more often.
        self._is_woken = type(provider).wait_for_change is not Provider.wait_for_change
        self._jobs: list[Job] = []

    async def all(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs as they ended; raise JobsLate after the deadline."""
        self._jobs = list(jobs)
        until = self._clock() + self._deadline
        self._on_progress(self._jobs)
        watches = [asyncio.ensure_future(self._watch(at, until)) for at in range(len(jobs))]
        try:
            await asyncio.gather(*watches)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        return self._jobs

    async def _watch(self, at: int, until: float) -> None:
        wait = _FIRST_LOOK
        while not (job := self._jobs[at]).has_ended:
            left = until - self._clock()
            if left <= 0:
                raise self._late()
            if self._is_woken:
                begun = self._clock()
                found = await self._changed(job, min(self._longest_call, left))
                if found.status == job.status and self._clock() - begun < wait:
                    # A server that answers at once, with nothing new, is not asked in a circle.
                    await self._sleep(min(wait, left))
            else:
                await self._sleep(min(wait, left))
                found = await self._now(job)
            has_changed = found.status != job.status
            wait = _FIRST_LOOK if has_changed else min(1.5 * wait, _LAST_LOOK)
            self._jobs[at] = found
            if has_changed:
                self._on_progress(self._jobs)

    async def _changed(self, job: Job, timeout: float) -> Job:
        return await self._repeated(lambda: self._provider.wait_for_change(job, timeout))

    async def _now(self, job: Job) -> Job:
        return await self._repeated(lambda: self._provider.job(job.id))

    def _late(self) -> JobsLate:
        open_jobs = [f"{job.id} ({job.status})" for job in self._jobs if not job.has_ended]
        return JobsLate(
            f"{' and '.join(open_jobs)} did not end within {self._deadline:g} s"
            " ('client.job_deadline_seconds'); they go on at the provider, and a resume waits for them again"
        )


def check_success(jobs: Sequence[Job]) -> None:
    """Raise LudusError with the whole error of every job that did not succeed."""
    bad = [job for job in jobs if job.status != "succeeded"]
    if not bad:
        return
    told = [
        f"{job.id} for {job.model} {'was cancelled' if job.status == 'cancelled' else job.status}"
        + (f": {job.error}" if job.error else "")
        for job in bad
    ]
    raise LudusError(
        f"{len(bad)} of {len(jobs)} fine-tuning jobs did not succeed: {'; '.join(told)}; to create one again,"
        " delete its lines in journals/jobs.jsonl, then resume"
    )
