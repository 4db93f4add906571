"""The client: asks a provider for samples and fine-tuning jobs, at its pace, in a budget, each thing once.

Client.chat           journal -> cache -> budget -> pace, tries and backoff -> ledger and journal
Client.ensure_job     journal -> budget -> intent, creation, id (job_creation.py)
Client.wait_for_jobs  until all have ended (job_waiting.py)
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Self, TypeVar

from ludus.core.errors import Interrupted, LudusError, nearest
from ludus.core.services import JournalProtocol, Tell, drop_message
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.client.answers import AnswerJournal, Iteration
from ludus.text.client.asking import ChatAsking
from ludus.text.client.attempts import Attempts
from ludus.text.client.cache import ResponseCache
from ludus.text.client.config import ClientConfig
from ludus.text.client.job_creation import JOURNAL, JobCreation
from ludus.text.client.job_waiting import JobWaiting, OnProgress
from ludus.text.client.ledger import JOBS, Ledger
from ludus.text.client.spending import (
    NOTHING,
    Amount,
    Payer,
    Spent,
    spent_on_job,
    worst_of_job,
)
from ludus.text.jobs import Job, JobSpec
from ludus.text.provider import Provider

T = TypeVar("T")
_POLL_SECONDS = 0.1


class Client:
    """Asks one provider on behalf of one run; used in one event loop, inside `async with`."""

    def __init__(
        self,
        provider: Provider,
        config: ClientConfig,
        *,
        journal: Callable[[str], JournalProtocol],
        ledger: Ledger,
        cache: ResponseCache | None = None,
        tell: Tell = drop_message,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`journal` is `run.journal`; `is_interrupted` returns `run.interrupted`, and is polled."""
        self.provider, self.config, self.ledger = provider, config, ledger
        self._is_interrupted = is_interrupted
        self.answers = AnswerJournal(journal)
        self._jobs_journal = journal(JOURNAL)
        name = f"the provider '{provider.config.kind}'"
        self._attempts = Attempts(
            config,
            seed=provider.services.seed,
            name=name,
            limits=lambda: getattr(provider, "limits", None),
        )
        attempts = self._attempts
        self._creation = JobCreation(
            provider,
            self._jobs_journal,
            settle_seconds=config.settle_seconds,
            repeated=attempts.repeated,
            once=attempts.once,
            backoff=attempts.backoff,
            tell=tell,
        )
        self._asking = ChatAsking(
            provider,
            answers=self.answers,
            attempts=attempts,
            ledger=ledger,
            cache=cache,
            is_recorded=config.record_answers == "always" or not provider.is_repeatable,
        )
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the provider, and read from the journals what was spent."""
        self.ledger.begin([*self.answers.iterations(), self._spent_on_jobs()])
        await self.provider.open()
        self._watch = asyncio.create_task(self._watch_for_interrupt())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Make all answers durable, and close the provider."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        try:
            await self.answers.flush()
            self.answers.seal()
        finally:
            await self.provider.close()

    def begin(self, iteration: int) -> None:
        """Keep the answers that follow in the journal of this iteration, with those it already has."""
        self.ledger.replace(self.answers.begin(iteration))

    async def flush(self) -> None:
        """Make all answers durable; call it at the end of a stage."""
        await self.answers.flush()

    async def check_models(self, names: Iterable[str]) -> None:
        """Raise LudusError, before work begins, for a model that the provider lacks or soon shuts down."""
        wanted = list(dict.fromkeys(names))
        self.ledger.check_prices(wanted)
        known = {one.id: one for one in await self._attempts.repeated(self.provider.models)}
        today = datetime.datetime.now(datetime.UTC).date()
        for name in wanted:
            if name not in known:
                raise LudusError(
                    f"the provider '{self.provider.config.kind}' has no model '{name}'.{nearest(name, known)}"
                )
            end = _date(known[name].shutdown_date)
            if end is not None and (end - today).days < self.config.model_days:
                raise LudusError(
                    f"the model '{name}' is shut down on {end}, {max(0, (end - today).days)} days from now,"
                    f" and 'client.model_days' is {self.config.model_days}; choose another model, or lower it"
                    " if the run ends before"
                )

    async def chat(self, request: ChatRequest, *, key: str, agent: str, stage: str) -> ChatAnswer:
        """Return the samples of a request; one whose answer the journal has is not sent again.

        The key is unique in its iteration, and the same at each execution of the run.
        """
        return await self._asking.answer(request, key=key, agent=agent, stage=stage)

    async def together(self, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines that ask this client, and return their results in order.

        The first error stops all of them; requests in flight still have a few seconds to be answered. When it
        is raised, as when the results are returned, every answer is durable.
        """
        tasks = [asyncio.ensure_future(one) for one in work]
        try:
            return list(await asyncio.gather(*tasks))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._attempts.stop(error)
            await asyncio.wait(tasks)
            # Of several errors the one that opened the circuit is the reason of the others.
            stopped_by = self._attempts.stopped_by
            raise stopped_by if stopped_by is not None else error from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.answers.flush()

    async def ensure_job(self, spec: JobSpec, *, agent: str, stage: str) -> Job:
        """Return the fine-tuning job of a spec: the one of the journal, or a new one; never a second.

        `agent` is whose job it is: a name, or that of a group that shares the model.
        """
        if spec.num_examples < self.provider.min_examples:
            raise LudusError(
                f"the training file for {spec.model} has {spec.num_examples} examples, and the provider"
                f" '{self.provider.config.kind}' takes {self.provider.min_examples} or more; collect more"
            )
        payer = Payer(agent, stage, spec.model)
        price = self.ledger.price_of(spec.model)
        worst = worst_of_job(spec, price)
        if self._creation.created(spec.key) is not None:
            return await self._creation.ensure(spec, payer=payer, worst=worst)
        before = self._spent_on_job(spec.key)
        # One that may have been created counts at its maximum already.
        missing = worst if before == Spent() else NOTHING
        await self.ledger.reserve(missing, what=f"a job of up to {worst.tokens} training tokens")
        try:
            job = await self._creation.ensure(spec, payer=payer, worst=worst)
        finally:
            # A job that may have been created counts at its maximum, until it has ended.
            after = self._spent_on_job(spec.key)
            self.ledger.book(JOBS, payer, after, instead_of=before)
            self.ledger.free(missing)
        return job

    async def job(self, job_id: str) -> Job:
        """Return how a job stands."""
        return await self._attempts.repeated(lambda: self.provider.job(job_id))

    def has_reported(self, job: Job) -> bool:
        """Return whether a job did not succeed, and an earlier wait has said so."""
        if job.status not in ("failed", "cancelled"):
            return False
        journal = self._jobs_journal
        found = [journal.get(key) or {} for key in journal.keys()]  # noqa: SIM118
        return any(record.get("id") == job.id and "spent" in record for record in found)

    async def wait_for_jobs(self, jobs: Sequence[Job], *, on_progress: OnProgress) -> list[Job]:
        """Return the jobs once all have ended, in order; `on_progress` is given all when one has changed."""
        waiting = JobWaiting(
            self.provider,
            deadline_seconds=self.config.job_deadline_seconds,
            longest_call=self.config.timeout_seconds / 2,
            repeated=self._attempts.repeated,
            on_progress=on_progress,
        )
        (ended,) = await self.together([waiting.all(jobs)])
        for job in ended:
            self._book_ended(job)
        return ended

    def _book_ended(self, job: Job) -> None:
        """Count what a job has cost, in place of its maximum."""
        journal = self._jobs_journal
        for key in journal.keys():  # noqa: SIM118 - a journal is no mapping
            record = journal.get(key) or {}
            if record.get("id") != job.id or "spent" in record:
                continue
            payer, worst = Payer(*record["by"]), Amount(*record["worst"])
            before = self._spent_on_job(key)
            spent = spent_on_job(job, self.ledger.price_of(payer.model), worst)
            journal.put(key, {**record, "spent": spent.to_json()})
            self.ledger.book(JOBS, payer, spent, instead_of=before)

    def _spent_on_job(self, key: str) -> Spent:
        """Return what a job counts for, by its last record."""
        record = self._jobs_journal.get(key) or {}
        if "spent" in record:
            return Spent.from_json(record["spent"])
        if record.get("state") in ("wanted", "created"):
            tokens, cost = record["worst"]
            return Spent(training_tokens=tokens, cost=cost)
        return Spent()

    def _spent_on_jobs(self) -> Iteration:
        found = Iteration(JOBS)
        for key in self._jobs_journal.keys():  # noqa: SIM118
            record = self._jobs_journal.get(key) or {}
            if "by" in record:
                payer = Payer(*record["by"])
                found.spent.setdefault(payer, Spent()).add(self._spent_on_job(key))
        return found

    async def _watch_for_interrupt(self) -> None:
        while not self._is_interrupted():
            await asyncio.sleep(_POLL_SECONDS)
        self._attempts.stop(Interrupted("the run was asked to pause"))


def _date(text: str | None) -> datetime.date | None:
    """Return the day of a text; one that is none is no reason to refuse a model."""
    with contextlib.suppress(ValueError):
        return None if text is None else datetime.date.fromisoformat(text[:10])
    return None
