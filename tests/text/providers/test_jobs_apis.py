"""Fireworks and Together: what is sent to them, and how jobs are found again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ludus.text.jobs import Job
from ludus.text.provider import Provider, ProviderError
from ludus.text.providers.fireworks import Fireworks, FireworksConfig
from ludus.text.providers.together import Together, TogetherConfig
from tests.text.client.parts import opened, services, spec
from tests.text.faulty_server import FaultyServer, Request

KEY_SECTION = {"variable": "FAULTY_KEY", "file": None}


class FireworksServer(FaultyServer):
    """The routes that the adapter needs, as its documentation has them."""

    async def _answer(self, request: Request) -> tuple[int, Any]:
        path = request.path.removeprefix("/v1/accounts/me")
        known: dict[str, dict[str, Any]] = self.__dict__.setdefault("known", {})
        if request.method == "GET":
            return (
                (200, known[path]) if path in known else (404, {"message": "not found", "code": 5})
            )
        if path == "/datasets":
            known[f"{path}/{request.body['datasetId']}"] = {"state": "UPLOADING"}
        elif path.endswith(":upload"):
            known[path.removesuffix(":upload")]["state"] = "READY"
        elif path.endswith(":cancel"):
            known[path.removesuffix(":cancel")]["state"] = "JOB_STATE_CANCELLED"
        else:
            name = request.query[f"{path[1:-1]}Id"]
            if f"{path}/{name}" in known:
                return 409, {"message": "exists", "code": 6}
            job = {"name": f"accounts/me{path}/{name}", "state": "JOB_STATE_CREATING"}
            known[f"{path}/{name}"] = {**request.body, **job, "createTime": "2026-11-01T00:00:00Z"}
            return 200, known[f"{path}/{name}"]
        return 200, {}


class TogetherServer(FaultyServer):
    """The routes that the adapter needs, as its documentation has them."""

    async def _answer(self, request: Request) -> tuple[int, Any]:
        path = request.path.removeprefix("/v1")
        if path == "/files":
            return 200, {"data": self.files}
        if path == "/files/upload":
            return 200, self._files(request)
        if path == "/fine-tunes" and request.method == "POST":
            job = {"id": f"ft-{len(self.jobs)}", "status": "pending", **request.body}
            self.jobs.append({**job, "created_at": "2026-11-01T00:00:00Z"})
            return 200, self.jobs[-1]
        if path == "/fine-tunes":
            return 200, {"data": self.jobs}
        found = [job for job in self.jobs if job["id"] == path.split("/")[2]]
        if path.endswith("/cancel"):
            found[0]["status"] = "cancelled"
        return 200, found[0]


def fireworks(url: str) -> Provider:
    config = FireworksConfig(kind="fireworks", url=url, key=KEY_SECTION, jobs_url=url, account="me")
    return Fireworks(config, services())


def together(url: str) -> Provider:
    return Together(TogetherConfig(kind="together", url=url, key=KEY_SECTION), services())


BOTH = [(FireworksServer, fireworks), (TogetherServer, together)]


@pytest.mark.parametrize(("server_class", "make"), BOTH)
@pytest.mark.parametrize("method", ["supervised", "dpo"])
@pytest.mark.parametrize("fault", [None, "after", "cut"])
def test_a_job_is_created_once_and_found_again(
    server_class: type[FaultyServer], make: Any, method: Any, fault: str | None
) -> None:
    creations = iter([fault])

    def strike(request: Request) -> str | None:
        path = request.path.rpartition("/")[2]
        is_creation = path in ("supervisedFineTuningJobs", "dpoJobs", "fine-tunes")
        return next(creations, None) if is_creation and request.method == "POST" else None

    async def main() -> None:
        async with server_class(fault=strike) as server:
            provider = make(server.url)
            hyperparameters = {"n_epochs": 2, **({"beta": 0.5} if method == "dpo" else {})}
            one = spec(method=method, hyperparameters=hyperparameters)
            async with opened(provider) as client:
                job = await client.ensure_job(one, agent="solver", stage="jobs")
                assert job.key == one.key or fault is None
                assert [found.id for found in await provider.find_jobs(one.key)] == [job.id]
                assert await provider.find_jobs(spec("another").key) == []
                assert (await provider.job(job.id)).status == "pending"
                assert (await provider.cancel_job(job.id)).status == "cancelled"
            created = [one for one in server.requests if strike_path(one)]
            assert len(created) == 1

    asyncio.run(main())


def strike_path(request: Request) -> bool:
    last = request.path.rpartition("/")[2]
    return request.method == "POST" and last in (
        "supervisedFineTuningJobs",
        "dpoJobs",
        "fine-tunes",
    )


def read(provider: Provider, row: dict[str, Any]) -> Job:
    return provider._read(row, None)  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("JOB_STATE_COMPLETED", "succeeded"),
        ("JOB_STATE_FAILED", "failed"),
        ("JOB_STATE_CANCELLED", "cancelled"),
        ("JOB_STATE_PAUSED", "paused"),
        ("JOB_STATE_RUNNING", "running"),
        ("JOB_STATE_INVENTED", "pending"),
    ],
)
def test_states_of_fireworks_are_read(state: str, status: str) -> None:
    row = {
        "name": "accounts/me/dpoJobs/x",
        "state": state,
        "status": {"message": "no lines"},
        "trainingConfig": {"baseModel": "b", "outputModel": "o"},
    }
    job = read(fireworks("http://x/v1"), row)
    assert (job.id, job.status, job.model, job.fine_tuned_model) == ("dpoJobs/x", status, "b", "o")
    assert job.error == ("no lines" if status == "failed" else None)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ("completed", "succeeded"),
        ("error", "failed"),
        ("user_error", "failed"),
        ("cancelled", "cancelled"),
        ("uploading", "running"),
        ("cancel_requested", "pending"),
    ],
)
def test_statuses_of_together_are_read(told: str, status: str) -> None:
    row = {"id": "ft-1", "status": told, "model": "b", "model_output_name": "o", "token_count": 9}
    job = read(together("http://x/v1"), {**row, "events": [{"message": "bad line"}]})
    assert (job.status, job.trained_tokens) == (status, 9)
    assert job.fine_tuned_model == ("o" if status == "succeeded" else None)
    assert job.error == ("bad line" if status == "failed" else None)


@pytest.mark.parametrize(("server_class", "make"), BOTH)
def test_a_hyperparameter_that_the_provider_lacks_is_refused_before_a_job(
    server_class: type[FaultyServer], make: Any
) -> None:
    async def main() -> None:
        async with server_class() as server, opened(make(server.url)) as client:
            one = spec(hyperparameters={"learning_rate_multiplier": 2})
            with pytest.raises(ProviderError, match="no hyperparameters named learning_rate_mult"):
                await client.ensure_job(one, agent="solver", stage="jobs")
            assert not [one for one in server.requests if strike_path(one)]

    asyncio.run(main())
