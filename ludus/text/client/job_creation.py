"""Create fine-tuning jobs, each once: the intent is durable first, and a lost answer is looked for.

journals/jobs.jsonl   by key: wanted (a request may be on its way), idle (none is), created (with the id)

1. The intent is written and made durable.
2. The job is created with its key in its metadata, by one request that is not repeated.
3. Its id is written and made durable.

After an unknown outcome, or a restart between 1 and 3, the jobs of the provider are listed until one with the
key is found, or until a job that was created would be in the list; only then is it created again. A provider
that cannot list its jobs leaves the question to a person.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ludus.core.errors import LudusError
from ludus.core.services import JournalProtocol, Tell
from ludus.text.client.spending import Amount, Payer
from ludus.text.jobs import Job, JobSpec
from ludus.text.provider import Provider, ProviderError

T = TypeVar("T")
JOURNAL = "jobs"
_FIRST_LOOK, _LAST_LOOK = 1.0, 30.0


class Repeats(Protocol):
    """Repeats a request that may be repeated, as far as the retries of the client go."""

    async def __call__(self, once: Callable[[], Awaitable[T]], /) -> T: ...


class Backoff(Protocol):
    """Waits before another try; raises the error when there were enough."""

    async def __call__(self, attempt: int, error: ProviderError, /) -> None: ...


class JobCreation:
    """Creates the jobs of one run."""

    def __init__(
        self,
        provider: Provider,
        journal: JournalProtocol,
        *,
        settle_seconds: float,
        repeated: Repeats,
        once: Repeats,
        backoff: Backoff,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`repeated` is for what has no effect, `once` for a request that is tried a single time."""
        self._provider, self._journal, self._tell = provider, journal, tell
        self._settle = 0.0 if provider.creates_once else settle_seconds
        self._repeated, self._once, self._backoff = repeated, once, backoff
        self._clock, self._sleep = clock, sleep

    def created(self, key: str) -> str | None:
        """Return the id of the job with this key, if the journal has it."""
        record = self._journal.get(key) or {}
        return str(record["id"]) if record.get("state") == "created" else None

    async def ensure(self, spec: JobSpec, *, payer: Payer, worst: Amount) -> Job:
        """Return the job of this spec, created now or earlier; its maximal cost is reserved by the caller."""
        about = {"by": list(payer), "worst": list(worst)}
        if (job_id := self.created(spec.key)) is not None:
            return await self._repeated(lambda: self._provider.job(job_id))
        record = self._journal.get(spec.key) or {}
        found: Job | None = None
        if record.get("state") == "wanted":
            found = await self._look_for(spec)
        elif self._provider.can_list_jobs:
            # One of the same run that was begun in another directory is used, if it came to something.
            earlier = await self._repeated(lambda: self._provider.find_jobs(spec.key))
            alive = [job for job in earlier if job.status not in ("failed", "cancelled")]
            found = self._oldest(alive, spec)
        if found is None:
            found = await self._create(spec, about)
        self._journal.put(spec.key, {"state": "created", "id": found.id, **about})
        return found

    async def _create(self, spec: JobSpec, about: dict[str, Any]) -> Job:
        attempt = 0
        while True:
            attempt += 1
            self._journal.put(spec.key, {"state": "wanted", "method": spec.method, **about})
            try:
                return await self._once(lambda: self._provider.create_job(spec))
            except ProviderError as error:
                failed = error
            if failed.is_known:
                self._journal.put(spec.key, {"state": "idle", **about})
            elif (found := await self._look_for(spec, after=failed)) is not None:
                return found
            if not failed.is_transient:
                raise failed
            await self._backoff(attempt, failed)

    async def _look_for(self, spec: JobSpec, *, after: ProviderError | None = None) -> Job | None:
        """Return the job whose creation may have succeeded; None once it surely has not."""
        if self._provider.creates_once:
            return None
        if not self._provider.can_list_jobs:
            raise self._question(spec) from after
        self._tell(
            f"the creation of a job for {spec.model} was not answered; looking for it in the list of jobs"
            f" for up to {self._settle:g} s before it is created again",
            event="job_unknown",
        )
        begun, wait = self._clock(), _FIRST_LOOK
        while True:
            # Taken before the request, so that what the list shows is at least that old.
            elapsed = self._clock() - begun
            jobs = await self._repeated(lambda: self._provider.find_jobs(spec.key))
            if (job := self._oldest(jobs, spec)) is not None:
                return job
            if elapsed >= self._settle:
                return None
            await self._sleep(min(wait, self._settle - elapsed))
            wait = min(2 * wait, _LAST_LOOK)

    def _oldest(self, jobs: list[Job], spec: JobSpec) -> Job | None:
        """Return the oldest job that really has the key: some servers ignore the filter of a list."""
        own = sorted(
            (job for job in jobs if job.key == spec.key), key=lambda job: (job.created_at, job.id)
        )
        if len(own) > 1:
            names = ", ".join(job.id for job in own)
            self._tell(
                f"there are {len(own)} jobs for the same training ({names}); the oldest, {own[0].id}, is"
                " used: cancel the others on the provider's page",
                event="jobs_doubled",
            )
        return own[0] if own else None

    def _question(self, spec: JobSpec) -> LudusError:
        line = f'{{"key": "{spec.key}", "record": {{"state": "created", "id": "ID"}}}}'
        return LudusError(
            f"the creation of a job for {spec.model} was not answered, and its provider cannot list jobs, so"
            " only you can see whether it exists; look at the provider's page: if it does, add the line"
            f" {line} with its id to journals/{JOURNAL}.jsonl; if it does not, delete the lines with that"
            " key; then resume"
        )
