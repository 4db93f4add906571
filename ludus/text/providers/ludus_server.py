"""A ludus server: one that runs at an address (`ludus serve`), or one of the run's own, started with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from ludus.config.registry import register
from ludus.text.chat import ChatRequest
from ludus.text.client.http import HttpClient
from ludus.text.client.secret import KeyConfig, Secret
from ludus.text.jobs import Job
from ludus.text.provider import ProviderConfig
from ludus.text.providers._openai_api import OpenaiApi
from ludus.text.providers._own_server import (
    Handle,
    NewModelSection,
    problems_of_address,
    started,
)


class LudusServerConfig(ProviderConfig):
    """A ludus server."""

    url: str | None
    """The base URL, up to and with /v1; null: the run starts a server and stops it at its end."""
    key: KeyConfig | None
    """Where the token is read that `ludus serve` wrote; null with a server of the run's own."""
    new_models: dict[str, NewModelSection]
    """The models that a server of the run's own makes where it does not have them, by name."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from problems_of_address(self.url, self.key, self.new_models)


@register("provider", "ludus_server")
class LudusServer(OpenaiApi):
    """A server whose answers repeat: the same seed brings the same text, at any load."""

    Config: ClassVar[type[LudusServerConfig]] = LudusServerConfig
    is_repeatable = True
    # The id of a job follows from its key.
    creates_once = True
    label = "the ludus server"
    _handle: Handle | None = None

    async def open(self) -> None:
        """Connect; start a server first if the config names none."""
        config = self.config
        assert isinstance(config, LudusServerConfig)
        if config.url is None:
            # The server ends with the thread that starts it, so it is this one, which lasts.
            self._handle = started(self.services.directory(), config.new_models)
            url = self._handle.url
            key: Secret | None = Secret(self._handle.token, place="its own token")
        else:
            url, key = config.url, None if config.key is None else config.key.read()
        self.http = HttpClient(url, key, name=self.label)
        await self.http.open()

    async def close(self) -> None:
        """Close all connections, and stop a server of the run's own."""
        try:
            await super().close()
        finally:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                await asyncio.to_thread(handle.close)

    def chat_body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the body of a chat completion; the server also tells the tokens of each sample."""
        return {**super().chat_body(request), "return_token_ids": True}

    async def wait_for_change(self, job: Job, timeout: float) -> Job:
        """Return the job once its status differs, or after `timeout` seconds: the server waits."""
        prefer = f"wait={timeout:.3f}, status={job.more.get('status', '')}"
        return self.read_job(await self.http.get(self.job_path(job.id), headers={"Prefer": prefer}))
