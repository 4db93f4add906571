"""Any server that speaks OpenAI's chat completions, such as vLLM or llama.cpp: for samples alone."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import ClassVar

from ludus.config.registry import register
from ludus.core.derived_seed import derive
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.jobs import Job, JobSpec
from ludus.text.provider import ProviderError
from ludus.text.providers._openai_api import OpenaiApi, ServerConfig

_SEED_BITS = 31


class CompatibleConfig(ServerConfig):
    """A server at any address."""

    takes_n: bool
    """Whether the server returns several samples of one request; if false each is a request of its own."""


@register("provider", "compatible")
class Compatible(OpenaiApi):
    """A server that samples."""

    Config: ClassVar[type[CompatibleConfig]] = CompatibleConfig
    can_list_jobs = False
    label = "the server"

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Return samples of the next message; without n, sample i has a seed derived from (seed, i)."""
        # Some servers take no more bits.
        short = dataclasses.replace(request, seed=request.seed % 2**_SEED_BITS)
        config = self.config
        assert isinstance(config, CompatibleConfig)
        if config.takes_n or request.n == 1:
            return await super().chat(short)
        single = [
            dataclasses.replace(
                request, n=1, seed=derive(request.seed, "sample", i) % 2**_SEED_BITS
            )
            for i in range(request.n)
        ]
        tried = await asyncio.gather(
            *[super(Compatible, self).chat(one) for one in single], return_exceptions=True
        )
        answers = [one for one in tried if isinstance(one, ChatAnswer)]
        for one in tried:
            if isinstance(one, ProviderError):
                # The others may have been charged for.
                one.is_known = one.is_known and not answers
            if isinstance(one, BaseException):
                raise one
        return ChatAnswer(
            tuple(choice for answer in answers for choice in answer.choices),
            sum(answer.prompt_tokens for answer in answers),
            sum(answer.completion_tokens for answer in answers),
            sum(answer.cached_tokens for answer in answers),
        )

    async def create_job(self, spec: JobSpec) -> Job:
        """Raise ProviderError: it does not tune."""
        raise _no_jobs()

    async def find_jobs(self, key: str) -> list[Job]:
        """Raise ProviderError: it has no jobs."""
        raise _no_jobs()

    async def job(self, job_id: str) -> Job:
        """Raise ProviderError: it has no jobs."""
        raise _no_jobs()

    async def cancel_job(self, job_id: str) -> Job:
        """Raise ProviderError: it has no jobs."""
        raise _no_jobs()


def _no_jobs() -> ProviderError:
    return ProviderError(
        "a provider of kind 'compatible' samples and does not tune; use ludus_server, openai, fireworks or"
        " together"
    )
