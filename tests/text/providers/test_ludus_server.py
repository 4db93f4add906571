"""The ludus server as a provider: at an address, or one that the run starts and stops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ludus.config.sections import StrictConfig, validate
from ludus.core.errors import ConfigError
from ludus.text.jobs import Job
from ludus.text.provider import ProviderServices
from ludus.text.providers.ludus_server import LudusServer, LudusServerConfig
from tests.text.client.parts import KEY, opened, request, services, spec
from tests.text.faulty_server import FaultyServer

KEY_SECTION = {"variable": "FAULTY_KEY", "file": None}


def config(**keys: Any) -> LudusServerConfig:
    data = {"kind": "ludus_server", "url": None, "key": None, "new_models": {}}
    return validate(LudusServerConfig, {**data, **keys}, source="x")


def test_a_server_at_an_address_is_asked_with_its_token_and_tells_the_tokens() -> None:
    async def main() -> None:
        async with FaultyServer(key=KEY) as server:
            provider = LudusServer(config(url=server.url, key=KEY_SECTION), services())
            async with opened(provider) as client:
                await client.chat(request(n=2), key="a", agent="solver", stage="sample")
            assert server.requests[0].body["return_token_ids"] is True
            assert server.requests[0].body["max_tokens"] == 8

    asyncio.run(main())


def test_the_server_is_asked_to_wait_for_a_change() -> None:
    async def main() -> None:
        async with FaultyServer(steps_to_end=1) as server:
            provider = LudusServer(config(url=server.url), services())
            async with opened(provider) as client:
                job = await client.ensure_job(spec(), agent="solver", stage="jobs")
                await client.wait_for_jobs([job], on_progress=lambda jobs: None)
            asked = server.asked("/fine_tuning/jobs/ftjob-0", "GET")
            assert asked[0].headers["prefer"] == "wait=5.000, status=queued"
            # The key decides the id at this server, so nobody has to look whether there is a job.
            assert isinstance(job, Job)

    asyncio.run(main())


def test_a_creation_that_was_lost_is_repeated_at_once_as_it_makes_one_job() -> None:
    faults = iter(["after"])

    async def main() -> None:
        async with FaultyServer() as server:
            server.fault = lambda asked: (
                next(faults, None)
                if (asked.method, asked.path) == ("POST", "/v1/fine_tuning/jobs")
                else None
            )
            async with opened(LudusServer(config(url=server.url), services())) as client:
                await client.ensure_job(spec(), agent="solver", stage="jobs")
            assert len(server.asked("/fine_tuning/jobs")) == 2

    asyncio.run(main())


@dataclass
class Handle:
    """A server that was started, as `start_server` returns one."""

    url: str
    token: str
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


def test_a_server_of_the_runs_own_is_started_in_its_directory_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles: list[Handle] = []

    class NewModelConfig(StrictConfig):
        """A new model."""

        width: int
        """The width."""

    models, start = ModuleType("new_model"), ModuleType("start")
    models.NewModelConfig = NewModelConfig  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ludus.text.models.new_model", models)
    monkeypatch.setitem(sys.modules, "ludus.text.server.start", start)

    async def main() -> None:
        async with FaultyServer(key="tml-token") as server:

            def start_server(root: Path, *, new_models: Mapping[str, NewModelConfig]) -> Handle:
                assert root == tmp_path
                assert new_models["tiny"].width == 8
                handles.append(Handle(server.url, "tml-token"))
                return handles[0]

            start.start_server = start_server  # type: ignore[attr-defined]
            found = config(new_models={"tiny": {"width": 8}})
            provider = LudusServer(found, ProviderServices(lambda: tmp_path, seed=0))
            async with opened(provider) as client:
                await client.chat(request(), key="a", agent="solver", stage="sample")
                assert not handles[0].is_closed
            assert handles[0].is_closed

    asyncio.run(main())


def test_conflicts_between_keys_are_told() -> None:
    with pytest.raises(ConfigError, match="set 'key' to null"):
        config(key=KEY_SECTION)
    with pytest.raises(ConfigError, match="give one such as"):
        config(url="here")
