"""The connection of a run to its provider: the client, the checks before work, and the jobs of groups."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError, LudusError
from ludus.core.run import Run
from ludus.core.services import Files
from ludus.store.places import is_url
from ludus.text.client.cache import ResponseCache
from ludus.text.client.client import Client
from ludus.text.client.ledger import Ledger
from ludus.text.config import TextHyperParameters
from ludus.text.groups import PureTextSharedModelGroup
from ludus.text.jobs import Job
from ludus.text.provider import Provider, ProviderServices

T = TypeVar("T")


class ProviderConnection:
    """Between `open` and `close` there is a client; the ledger is a part of the trainer."""

    def __init__(
        self, config: TextHyperParameters, run: Run, files: Callable[[], Files | None]
    ) -> None:
        """`files` returns the files of the run, or of the run whose models are used."""
        self._config, self._run, self._files = config, run, files
        self.ledger = Ledger(config.budget)
        self._kept = contextlib.ExitStack()
        services = ProviderServices(directory=self._directory, seed=config.seed, tell=run.tell)
        self.provider: Provider = find("provider", kind_of(config.provider))(
            config.provider, services
        )
        cache = config.client.cache
        self.client = Client(
            self.provider,
            config.client,
            journal=run.journal,
            ledger=self.ledger,
            cache=None if cache is None else ResponseCache(Path(cache), provider=_address(config)),
            tell=run.tell,
            is_interrupted=lambda: run.interrupted,
        )
        self._is_open = False

    async def open(self, groups: Iterable[PureTextSharedModelGroup]) -> None:
        """Connect; raise LudusError for a model that is not there, or gone before the run could end."""
        await self.client.__aenter__()
        self._is_open = True
        names = (name for group in groups for name in (group.model, group.base_model))
        await self.client.check_models(name for name in names if self.provider.lists(name))

    async def close(self) -> None:
        """Disconnect, and stop a server that was started for the run."""
        is_open, self._is_open = self._is_open, False
        try:
            if is_open:
                await self.client.__aexit__(None, None, None)
            else:
                await self.provider.close()
        finally:
            self._kept.close()

    def _directory(self) -> Path:
        """Return the directory of a server that the run starts for itself."""
        files = self._files()
        if files is None:
            return Path(self._kept.enter_context(tempfile.TemporaryDirectory(prefix="ludus-text-")))
        if is_url(files.place):
            raise ConfigError(
                f"the run is kept in {files.place}, where no server can keep its models; start one with"
                " `ludus serve` and give its address in 'provider.url', or train with --root on this machine"
            )
        return Path(files.place) / "server"

    async def together(self, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines that ask the provider; their answers are durable when this returns."""
        return await self.client.together(work)

    async def ensure_job(self, group: PureTextSharedModelGroup, stage: str) -> Job:
        """Create the job of a group, or return the one that was created for the same examples.

        One that has failed, and was reported, is followed by another.
        """
        while True:
            assert group.spec is not None
            job = await self.client.ensure_job(group.spec, agent=group.name, stage=stage)
            if not self.client.has_reported(job):
                return job
            group.ask_again()

    async def has_reported(self, groups: Sequence[PureTextSharedModelGroup]) -> bool:
        """Return whether an earlier wait has reported that a job of these groups did not succeed."""
        return any(
            [self.client.has_reported(await self.client.job(str(one.job_id))) for one in groups]
        )

    async def wait(self, groups: Sequence[PureTextSharedModelGroup]) -> None:
        """Wait until the jobs of these groups have ended, and note their models.

        Raise LudusError that says how each job ended that has not succeeded; then no group switches.
        """
        jobs = [await self.client.job(str(group.job_id)) for group in groups]
        ended = await self.client.wait_for_jobs(jobs, on_progress=self._show)
        problems = []
        for group, job in zip(groups, ended, strict=True):
            try:
                group.note_ended(job)
            except LudusError as error:
                problems.append(str(error))
        if problems:
            raise LudusError(
                f"{'; '.join(problems)}. No group has switched to its next model; a resume creates a new"
                " job in the place of each that did not succeed"
            )

    def _show(self, jobs: Sequence[Job]) -> None:
        counts: dict[str, int] = {}
        for job in jobs:
            counts[job.status] = counts.get(job.status, 0) + 1
        if any(not job.has_ended for job in jobs):
            shown = ", ".join(f"{count} {status}" for status, count in counts.items())
            self._run.tell(f"fine-tuning jobs: {shown}")

    @property
    def min_examples(self) -> int:
        """The least number of examples of a job."""
        return self.provider.min_examples

    def log_spent(self) -> None:
        """Log the tokens and the money so far, by stage and agent, with the clock's records.

        A run that was killed may have paid twice for an answer, so these are no metrics of the result.
        """
        found: dict[str, float] = {}
        for payer, spent in self.ledger.by_payer().items():
            rows = {
                "requests": spent.requests + spent.lost_requests,
                "prompt_tokens": spent.prompt_tokens,
                "completion_tokens": spent.completion_tokens,
                "training_tokens": spent.training_tokens,
                "cost": spent.at_most.cost,
            }
            for name, value in rows.items():
                if value:
                    key = f"spent/{payer.stage}/{payer.agent}/{name}"
                    found[key] = found.get(key, 0.0) + value
        for name, value in found.items():
            self._run.log.rate(name, value)


def _address(config: TextHyperParameters) -> str:
    """Return what distinguishes the models of a provider from those of another with the same names.

    Models that a run makes for itself are others where they are described otherwise.
    """
    provider = config.provider
    rows = provider.model_dump(exclude={"key"})
    return (
        f"{provider.kind} {hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()}"
    )
