"""Provider: where models are sampled from and tuned; a new one is a file of `providers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import SerializeAsAny

from ludus.config.base import StrictConfig
from ludus.config.sections import registered
from ludus.core.errors import LudusError
from ludus.core.services import Tell, drop_message
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.jobs import Job, JobSpec


class ProviderError(LudusError):
    """A provider refused a request, or did not answer it."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        is_transient: bool = False,
        is_rate_limit: bool = False,
        is_known: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.is_transient = is_transient
        """Whether the same request may succeed later."""
        self.is_rate_limit = is_rate_limit
        """Whether the provider asks for fewer requests a minute."""
        self.is_known = is_known
        """Whether it is certain that the request had no effect."""
        self.retry_after = retry_after
        """The seconds that the provider asks to wait."""


@dataclass(frozen=True)
class ModelInfo:
    """A model that a provider has."""

    id: str
    shutdown_date: str | None = None
    """The day, as YYYY-MM-DD, from which on it is gone."""
    context: int | None = None
    """The maximum number of tokens of prompt and sample together."""


@dataclass(frozen=True)
class ProviderServices:
    """What a provider is given by the run that uses it."""

    directory: Callable[[], Path]
    """Returns a directory on this machine for a server of its own; raises LudusError where there is none."""
    seed: int
    tell: Tell = drop_message


class ProviderConfig(StrictConfig):
    """The keys of every provider."""

    kind: str
    """The provider."""


ProviderSection = Annotated[SerializeAsAny[ProviderConfig], registered("provider")]


class Provider(ABC):
    """Samples from models and tunes them. Every method is one try: pace, retries and money are the client's.

    Methods raise ProviderError. They are called from one event loop, between `open` and `close`.
    """

    Config: ClassVar[type[ProviderConfig]]
    min_examples: ClassVar[int] = 1
    """The least number of examples of a fine-tuning job."""
    can_list_jobs: ClassVar[bool] = True
    """Whether jobs can be listed, so that one whose creation was not answered can be found."""
    creates_once: ClassVar[bool] = False
    """Whether a second creation with the same key returns the first job, so that it may be repeated."""
    is_repeatable: ClassVar[bool] = False
    """Whether the same request gets the same samples at any time, so that no answer must be recorded."""

    def __init__(self, config: ProviderConfig, services: ProviderServices) -> None:
        self.config, self.services = config, services

    async def open(self) -> None:  # noqa: B027 - many have nothing to open
        """Connect; start what must run."""

    async def close(self) -> None:  # noqa: B027
        """Disconnect; stop what was started."""

    def lists(self, name: str) -> bool:
        """Return whether `models` would name a model of this name; weights saved in training may not be."""
        return True

    @abstractmethod
    async def models(self) -> Sequence[ModelInfo]:
        """Return the models there are."""

    @abstractmethod
    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Return samples of the next message."""

    @abstractmethod
    async def create_job(self, spec: JobSpec) -> Job:
        """Create a fine-tuning job with `spec.key` in its metadata."""

    @abstractmethod
    async def find_jobs(self, key: str) -> list[Job]:
        """Return the jobs with this key, the oldest first."""

    @abstractmethod
    async def job(self, job_id: str) -> Job:
        """Return how a job stands."""

    async def wait_for_change(self, job: Job, timeout: float) -> Job:
        """Return the job once its status differs, or after `timeout` seconds; override it to be woken."""
        return await self.job(job.id)

    @abstractmethod
    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job."""
