"""A sweep on a cluster that its user has started, of several machines."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ludus.core.errors import LudusError
from ludus.sweep import Sweeper
from ludus.sweep.cluster import connection, host
from ludus.sweep.search import Search
from tests.sweep.ray_cluster import JoinedCluster
from tests.sweep.ray_processes import WORKER, all_of, folders, gone, named
from tests.sweep.small import INLINE, RAY, sweep_data
from tests.sweep.test_killed import unlike
from tests.sweep.test_ray_faults import long_runs, num_logged

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder with a short path, as Ray's sockets need one."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="joined-") as folder:
        yield Path(folder)


@pytest.fixture
def cluster(short: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JoinedCluster]:
    """Start two machines, one of which says that it has a GPU."""
    made = JoinedCluster(short, (1, 0), (1, 1))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def on(cluster: JoinedCluster, **changed: Any) -> dict[str, Any]:
    return {**RAY, "address": cluster.address, **changed}


def workers_of(cluster: JoinedCluster) -> list[psutil.Process]:
    return named(psutil.Process(cluster.pid).children(recursive=True), WORKER)


def here(folder: Path) -> Path:
    """Run the same sweep in this process, to be compared."""
    folder.mkdir()
    Sweeper(long_runs(folder, INLINE)).sweep(root=folder / "sweeps", show_on="none")
    return folder


def test_a_sweep_joins_and_leaves_the_cluster_and_needs_no_room_for_all_workers(
    cluster: JoinedCluster, tmp_path: Path
) -> None:
    before = folders()
    data = long_runs(tmp_path, on(cluster, workers=3))
    Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    assert unlike(tmp_path, here(tmp_path / "here")) == []
    assert gone(workers_of(cluster))
    assert folders() == before
    assert len(named(psutil.Process(cluster.pid).children(recursive=True), "raylet")) >= 2


def test_runs_of_a_machine_that_is_lost_go_on_elsewhere(
    cluster: JoinedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logged, heard = Search.logged, 0

    def listen(self: Search, *given: Any) -> str | None:
        nonlocal heard
        heard += 1
        if heard == 30:
            cluster.lose()
        return logged(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Search, "logged", listen)
        data = long_runs(tmp_path, on(cluster))
        Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    assert heard > 30
    assert unlike(tmp_path, here(tmp_path / "here")) == []


def test_a_killed_sweep_leaves_no_worker_and_the_same_command_goes_on(
    cluster: JoinedCluster, warm: WarmProcess, tmp_path: Path
) -> None:
    data = long_runs(tmp_path, on(cluster))
    given = {"data": data, "at": None, "count": 0, "wrong": "nothing"}
    pid = warm.start("sweep", folder=str(tmp_path), variables=cluster.environment, **given)
    while num_logged(tmp_path) < 20:
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE, warm.output(pid)
        time.sleep(0.005)
    workers, own = workers_of(cluster), all_of(pid)
    os.kill(pid, signal.SIGKILL)
    warm.wait(pid)
    # At once: those of the killed one may still be there.
    Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    assert workers
    assert gone(workers)
    assert gone(own)
    assert unlike(tmp_path, here(tmp_path / "here")) == []


def test_another_version_or_another_token_is_one_sentence(
    cluster: JoinedCluster, monkeypatch: pytest.MonkeyPatch, short: Path, tmp_path: Path
) -> None:
    data = sweep_data(tmp_path, engine=on(cluster))
    with monkeypatch.context() as patch:
        patch.setattr(connection, "versions", lambda: {**host.versions(), "torch": "1.0.0"})
        with pytest.raises(LudusError, match=r"has torch .*, and this one has 1\.0\.0; install"):
            Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    (short / "wrong").write_text("f" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(short / "wrong"))
    with pytest.raises(
        LudusError, match=r"cannot be joined: .*let RAY_AUTH_TOKEN_PATH name its file"
    ):
        Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")


def test_a_worker_has_the_gpus_that_it_asks_for(
    cluster: JoinedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: set[str] = set()
    logged = Search.logged

    def look(self: Search, *given: Any) -> str | None:
        environments = [worker.environ() for worker in workers_of(cluster)]
        seen.update(one.get("CUDA_VISIBLE_DEVICES", "none") for one in environments)
        return logged(self, *given)

    monkeypatch.setattr(Search, "logged", look)
    data = sweep_data(tmp_path, engine=on(cluster, workers=2, gpus_per_worker=0.5))
    Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    assert seen == {"0"}
