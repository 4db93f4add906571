"""Models of this machine, sampled from and tuned in this process, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.core.errors import LudusError
from ludus.session.device import resolve_device
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.jobs import KEY_NAME, Job, JobSpec
from ludus.text.models.new_model import NewModelConfig
from ludus.text.provider import (
    ModelInfo,
    Provider,
    ProviderConfig,
    ProviderError,
    ProviderServices,
)
from ludus.text.server.bridge import Bridge
from ludus.text.server.engine import TextEngine
from ludus.text.server.errors import ApiError
from ludus.text.server.job_record import JobRequest
from ludus.text.server.opening import opened_engine
from ludus.text.server.settings import EngineSettings


@register("provider", "in_process")
class InProcess(Provider):
    """The engine of `ludus serve` without HTTP: fine-tuning jobs run in a child process, as there."""

    is_repeatable = True
    creates_once = True

    class Config(ProviderConfig):
        """Options of the engine."""

        kind: Literal["in_process"]
        """Models in this process."""
        new_models: dict[str, NewModelConfig]
        """Models to make with random weights, by name; one that the directory of the run has is kept."""
        models: dict[str, Annotated[str, Field(min_length=1)]]
        """Directories of models to copy, by name."""
        max_rows: Positive
        """The number of samples that a model computes at a time."""
        max_loaded_models: Positive
        """Above this, the least recently used model is released."""
        device: str
        """Where models are sampled from and tuned: cpu, cuda, cuda:1, or auto: the best this machine has."""

    def __init__(self, config: Config, services: ProviderServices) -> None:
        super().__init__(config, services)
        self._settings = config
        self._opened = contextlib.ExitStack()
        self._engine: TextEngine | None = None
        self._bridge: Bridge

    async def open(self) -> None:
        """Make the models, and go on with the jobs of an earlier process."""
        config = self._settings
        opening = opened_engine(
            self.services.directory(),
            EngineSettings(
                max_rows=config.max_rows,
                max_loaded_models=config.max_loaded_models,
                device=str(resolve_device(config.device, key="provider.device")),
                num_threads=None,
            ),
            new_models=config.new_models,
            models={name: Path(path) for name, path in config.models.items()},
            tell=self.services.tell,
        )
        self._engine = self._opened.enter_context(opening)
        self._bridge = Bridge(asyncio.get_running_loop())

    async def close(self) -> None:
        """Stop; open jobs go on when the run is resumed."""
        self._engine = None
        await asyncio.to_thread(self._opened.close)

    @property
    def engine(self) -> TextEngine:
        """The engine, while it is open."""
        if self._engine is None:
            raise ProviderError("the provider in_process is not open")
        return self._engine

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models of the directory."""
        engine = self.engine
        entries = engine.library.entries()
        return [ModelInfo(entry.name, context=engine.context_of(entry)) for entry in entries]

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Return samples of the next message."""
        engine = self.engine
        with _as_provider_error():
            if engine.is_loaded(request.model):
                answer = engine.chat(request)
            else:
                answer = await asyncio.to_thread(engine.chat, request)
            return await self._bridge.wrap(answer)

    async def create_job(self, spec: JobSpec) -> Job:
        """Create a job, or return the one with its key."""
        with _as_provider_error():
            return await asyncio.to_thread(self._create, spec)

    def _create(self, spec: JobSpec) -> Job:
        file = self.engine.files.add(
            io.BytesIO(spec.lines),
            filename="training.jsonl",
            purpose="fine-tune",
            idempotency_key=f"training file of {spec.key}",
        )
        request = JobRequest(
            model=spec.model,
            training_file=file.id,
            validation_file=None,
            method=spec.method,
            hyperparameters=dict(spec.hyperparameters),
            suffix=spec.suffix,
            seed=spec.seed,
            metadata={KEY_NAME: spec.key},
        )
        return self.engine.jobs.create(request).to_job()

    async def find_jobs(self, key: str) -> list[Job]:
        """Return the job with this key, if there is one."""
        jobs = reversed(self.engine.jobs.store.listed())
        return [job.to_job() for job in jobs if job.request.metadata.get(KEY_NAME) == key]

    async def job(self, job_id: str) -> Job:
        """Return how a job stands."""
        with _as_provider_error():
            return self.engine.jobs.store.get(job_id).to_job()

    async def wait_for_change(self, job: Job, timeout: float) -> Job:
        """Return the job once its status differs, or after `timeout` seconds."""
        store = self.engine.jobs.store
        with _as_provider_error():
            until = asyncio.get_running_loop().time() + timeout
            while True:
                found = store.get(job.id)
                left = until - asyncio.get_running_loop().time()
                if found.to_job().status != job.status or left <= 0:
                    return found.to_job()
                changed = asyncio.wrap_future(store.when_changed(job.id, found.status))
                await asyncio.wait([changed], timeout=left)
                changed.cancel()

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job."""
        with _as_provider_error():
            return (await asyncio.to_thread(self.engine.jobs.cancel, job_id)).to_job()


@contextlib.contextmanager
def _as_provider_error() -> Iterator[None]:
    """Turn an error of the engine into that of a provider."""
    try:
        yield
    except ProviderError:
        raise
    except ApiError as error:
        # What a server answers with a status from 500 on may succeed later, as memory gets free.
        raise ProviderError(
            str(error), status=error.status, code=error.code, is_transient=error.status == 503
        ) from error
    except LudusError as error:
        raise ProviderError(str(error)) from error
