"""The connection of a run to its provider: the client, the checks before work, jobs, money, transcripts."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError, Interrupted, LudusError, nearest
from ludus.core.run import Run
from ludus.store.places import is_url
from ludus.text.client.client import Client
from ludus.text.client.ledger import Ledger
from ludus.text.config import TextHyperParameters
from ludus.text.groups import PureTextSharedModelGroup
from ludus.text.jobs import Job, Method
from ludus.text.provider import ModelInfo, Provider, ProviderServices

T = TypeVar("T")
_SIGNAL_SECONDS = 0.05


class Connection:
    """Between `open` and `close` there is a client; the ledger is a part of the trainer."""

    client: Client

    def __init__(self, config: TextHyperParameters, run: Run) -> None:
        self._config, self._run = config, run
        self.ledger = Ledger(config.budget)
        self._kept = contextlib.ExitStack()
        services = ProviderServices(directory=self._directory, seed=config.seed, tell=run.tell)
        self.provider: Provider = find("provider", kind_of(config.provider))(
            config.provider, services
        )

    async def open(self, groups: Iterable[PureTextSharedModelGroup], method: Method) -> None:
        """Connect; raise ConfigError for a model that is not there, or gone before the run could end."""
        await self.provider.open()
        self.client = Client(
            self.provider,
            self._config.client,
            journal=self._run.journal,
            files=self._run.files,
            ledger=self.ledger,
            tell=self._run.tell,
        )
        await self.client.open()
        check_models(await self.client.models(), groups, kind_of(self._config.provider))

    async def close(self) -> None:
        """Disconnect, and stop a server that was started for the run."""
        try:
            if "client" in vars(self):
                await self.client.close()
            await self.provider.close()
        finally:
            self._kept.close()

    def _directory(self) -> Path:
        """Return the directory of a server that the run starts for itself."""
        files = self._run.files
        if files is None:
            return Path(self._kept.enter_context(tempfile.TemporaryDirectory(prefix="ludus-text-")))
        if is_url(files.place):
            raise ConfigError(
                f"the run is kept in {files.place}, where no server can keep its models; start one with"
                " `ludus serve` and give its address in 'provider.url', or train with --root on this machine"
            )
        return Path(files.place) / "server"

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work to its end; where the run is asked to pause, end it in order and raise Interrupted."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait([task], timeout=_SIGNAL_SECONDS))[0]:
            if self._run.interrupted:
                task.cancel()
                await asyncio.wait([task])
                await self.client.flush()
                raise Interrupted
        return task.result()

    async def ensure_job(self, group: PureTextSharedModelGroup) -> Job:
        """Create the job of a group, or return the one that was created for the same examples."""
        spec = group.spec
        assert spec is not None
        return await self.client.ensure_job(spec, agent=group.name, stage="create_fine_tune_jobs")

    async def wait(self, groups: Sequence[PureTextSharedModelGroup]) -> None:
        """Wait until the jobs of these groups have ended, and note their models."""
        ids = [group.job_id for group in groups if group.job_id is not None]
        if not ids:
            return
        jobs = await self.client.wait_for_jobs(ids)
        ended = {job.id: job for job in jobs}
        problems = []
        for group in groups:
            try:
                group.note_ended(ended[str(group.job_id)])
            except LudusError as error:
                problems.append(str(error))
        if problems:
            raise LudusError("; ".join(problems))

    @property
    def min_examples(self) -> int:
        """The least number of examples of a job."""
        return self.provider.min_examples

    def spent(self) -> dict[str, float]:
        """Return the tokens and the money so far, by agent and stage, for the log."""
        return self.ledger.metrics()


def check_models(
    found: Sequence[ModelInfo], groups: Iterable[PureTextSharedModelGroup], provider: str
) -> None:
    """Raise ConfigError for a group whose model the provider does not have."""
    names = [one.id for one in found]
    for group in groups:
        if group.model not in names:
            raise ConfigError(
                f"the provider {provider} has no model '{group.model}', which the agents"
                f" {', '.join(group.agents)} speak by.{nearest(group.model, names)}"
            )
