"""A server that is killed at any instant goes on when it is started again, with the same bytes at the end."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from ludus.core.errors import LudusError
from ludus.seeds import derive
from ludus.text.server.engine import TextEngine
from ludus.text.server.start import ServerHandle, start_server
from tests.text.server.asking import asked, created, lines, tuned_bytes, when
from tests.text.server.warm import WarmServers

KEY = "fedcba9876543210" * 4
JOBS = "/fine_tuning/jobs"


@pytest.fixture(scope="module")
def expected(
    tiny: Path, warm_servers: WarmServers, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    """The weights of the job, undisturbed."""
    from tests.text.server.conftest import forked

    with forked(warm_servers), TextEngine(tmp_path_factory.mktemp("plain")) as engine:
        engine.add_model("tiny", tiny)
        return tuned_bytes(engine, when(engine, created(engine)))


def upload(server: ServerHandle) -> str:
    headers = {"Idempotency-Key": "the words"}
    files = {"file": ("a.jsonl", lines()), "purpose": (None, "fine-tune")}
    file_id: str = asked(server, "POST", "/files", headers=headers, files=files).json()["id"]
    return file_id


def create(server: ServerHandle) -> dict[str, str]:
    """Create the job that `created` makes, or find it."""
    body = {
        "model": "tiny", "training_file": upload(server), "suffix": "test", "seed": 5,
        "hyperparameters": {"n_epochs": 2, "batch_size": 4}, "metadata": {"ludus_key": KEY},
    }  # fmt: skip
    job: dict[str, str] = asked(server, "POST", JOBS, json=body).json()
    return job


def end(server: ServerHandle, job: dict[str, str], *, of: tuple[str, ...]) -> dict[str, str]:
    """Return the job once its status is none of these."""
    while job["status"] in of:
        headers = {"Prefer": f"wait=30, status={job['status']}"}
        job = asked(server, "GET", f"{JOBS}/{job['id']}", headers=headers).json()
    return job


def kill(server: ServerHandle) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.child.kill()


GOING_ON = ("validating_files", "queued", "running")


@pytest.mark.parametrize("moment", ["created", "running", "succeeded"])
def test_a_killed_server_goes_on_and_makes_the_same_model(
    moment: str, root: Path, forked_servers: None, expected: bytes
) -> None:
    server = start_server(root)
    job = create(server)
    if moment != "created":
        end(server, job, of=GOING_ON[: 2 if moment == "running" else 3])
    kill(server)
    with start_server(root) as server:
        assert create(server)["id"] == job["id"]
        job = end(server, create(server), of=GOING_ON)
        assert job["status"] == "succeeded"
        assert len(asked(server, "GET", JOBS).json()["data"]) == 1
        assert len(asked(server, "GET", "/files").json()["data"]) == 1
    with TextEngine(root) as engine:
        assert tuned_bytes(engine, engine.jobs.store.get(job["id"])) == expected
    assert leftovers(root) == []


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*") if ".tmp-" in path.name or ".trash-" in path.name]


def test_a_server_that_is_closed_ends_its_worker_too(root: Path, forked_servers: None) -> None:
    server = start_server(root)
    end(server, create(server), of=GOING_ON[:2])
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    assert len(family) >= 2
    server.close()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert [process.pid for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_two_servers_on_one_root_are_refused(root: Path, forked_servers: None) -> None:
    with start_server(root):
        with pytest.raises(LudusError, match=rf"{root} is in use by process \d+"):
            start_server(root)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_server_and_its_worker_killed_at_random_lose_nothing(
    seed: int, root: Path, forked_servers: None, expected: bytes
) -> None:
    """Ten kills each, of the server or of its worker, at any instant."""
    job_id = None
    for count in range(10):
        server = start_server(root)
        job = create(server)
        assert job_id in (None, job["id"])
        job_id = job["id"]
        drawn = derive(seed, "kill", count) % 1000 / 1000
        timer = threading.Event()
        timer.wait(drawn)
        children = psutil.Process(server.pid).children(recursive=True)
        if count % 2 and children:
            os.kill(children[-1].pid, signal.SIGKILL)
            timer.wait(drawn)
        kill(server)
    with start_server(root) as server:
        job = end(server, create(server), of=GOING_ON)
        assert job["status"] == "succeeded", job
        assert len(asked(server, "GET", JOBS).json()["data"]) == 1
    with TextEngine(root) as engine:
        assert tuned_bytes(engine, engine.jobs.store.get(job["id"])) == expected
    assert leftovers(root) == []
