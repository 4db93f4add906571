"""A ludus server: one that runs at an address (`ludus serve`), or one of the run's own, started with it."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BeforeValidator, SerializeAsAny

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.text.chat import ChatRequest
from ludus.text.client.http import HttpClient, url_problem
from ludus.text.client.secret import KeyConfig, Secret
from ludus.text.jobs import Job
from ludus.text.provider import ProviderConfig
from ludus.text.providers._openai_api import OpenaiApi

# Reading a provider's config must not load the network of a model, so these are imported when needed.
_NEW_MODELS, _SERVER = "ludus.text.models.new_model", "ludus.text.server.start"


def _new_model(value: object) -> StrictConfig:
    config_class: type[StrictConfig] = importlib.import_module(_NEW_MODELS).NewModelConfig
    return value if isinstance(value, config_class) else config_class.model_validate(value)


NewModelSection = Annotated[SerializeAsAny[StrictConfig], BeforeValidator(_new_model)]


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
        if self.url is None:
            if self.key is not None:
                yield "'url' is null, and a server of the run's own needs no key; set 'key' to null"
            return
        if problem := url_problem(self.url):
            yield problem
        if self.new_models:
            yield (
                "'new_models' are made by a server of the run's own, and 'url' names another; set 'url' to"
                " null, or 'new_models' to {}"
            )


class Handle(Protocol):
    """A server that was started."""

    url: str
    token: str

    def close(self) -> None:
        """Stop it."""


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
            self._handle = _started(self.services.directory(), config.new_models)
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


def _started(directory: object, new_models: Mapping[str, StrictConfig]) -> Handle:
    handle: Handle = importlib.import_module(_SERVER).start_server(directory, new_models=new_models)
    return handle
