"""A sweep on Ray is the sweep that it is elsewhere, and its cluster is nobody else's."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ludus.core.errors import ConfigError, LudusError
from ludus.sweep import Sweeper, SweepResult
from ludus.sweep.cluster.connection import check_machine
from ludus.sweep.cluster.host import Host, versions
from ludus.sweep.engines import ray as ray_engine
from ludus.sweep.search import Search
from tests.sweep.ray_processes import (
    LOCAL_ADDRESSES,
    WORKER,
    all_of,
    folders,
    gone,
    listening,
    named,
    token_of,
)
from tests.sweep.small import ASHA, INLINE, RAY, SAMPLERS, batches, lend_hill, sweep_data, swept
from tests.sweep.test_killed import unlike


@dataclass
class OneSweep:
    """A sweep on Ray, and what was seen of its cluster while it ran."""

    folder: Path
    result: SweepResult
    processes: list[psutil.Process]
    addresses: dict[str, set[str]]
    num_workers: int
    token: Path
    modes: tuple[int, int]
    token_size: int


@pytest.fixture(scope="module")
def one_sweep(tmp_path_factory: pytest.TempPathFactory) -> OneSweep:
    """Run one sweep for all tests of this file, as a cluster takes seconds to start."""
    folder, seen = tmp_path_factory.mktemp("ray"), SimpleNamespace()
    logged = Search.logged

    def look(self: Search, *given: Any) -> str | None:
        if not vars(seen):
            seen.processes = all_of(os.getpid())
            seen.addresses = listening(seen.processes)
            seen.num_workers = len(named(seen.processes, WORKER))
            seen.token = token_of(seen.processes)
            paths = (seen.token, seen.token.parent)
            seen.modes = tuple(stat.S_IMODE(path.stat().st_mode) for path in paths)
            seen.token_size = len(seen.token.read_text())
        return logged(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        lend_hill(patch)
        patch.setattr(Search, "logged", look)
        result = swept(folder, engine=RAY, **of_batches())
    return OneSweep(folder, result, **vars(seen))


def of_batches() -> dict[str, Any]:
    return batches(pruner=ASHA, sampler=SAMPLERS["tpe"], batch_size=2, budget__max_trials=7)


@pytest.mark.covers("001-M10")
def test_it_has_the_trials_the_bytes_and_the_best_of_a_sweep_in_this_process(
    one_sweep: OneSweep, tmp_path: Path
) -> None:
    here = swept(tmp_path, engine=INLINE, **of_batches())
    assert one_sweep.result.table() == here.table()
    assert {"pruned", "complete"} == {row["state"] for row in here.table()}
    assert unlike(one_sweep.folder, tmp_path) == []


def test_every_process_of_it_listens_on_this_machine_alone(one_sweep: OneSweep) -> None:
    assert {"gcs_server", "raylet"} <= set(one_sweep.addresses)
    assert set.union(*one_sweep.addresses.values()) <= LOCAL_ADDRESSES
    assert one_sweep.num_workers == RAY["workers"]


def test_its_token_is_for_its_user_and_nothing_is_left_of_it(one_sweep: OneSweep) -> None:
    assert one_sweep.modes == (0o600, 0o700)
    assert one_sweep.token_size == 64
    assert not one_sweep.token.parent.exists()
    assert one_sweep.token.parent.name not in folders()
    assert gone(one_sweep.processes)
    assert len(one_sweep.processes) > 8


def test_without_ray_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"needs ray; install it with: pip install 'ludus\[ray\]'"
    ):
        Sweeper(sweep_data(tmp_path, engine=RAY)).sweep(root=tmp_path, show_on="none")
    assert not (tmp_path / "climb").exists()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("auto", "'address' is 'auto'; begin the sweep on a machine of the cluster and write host"),
        ("ray://there:10001", "is 'ray://there:10001'; begin the sweep on a machine of"),
        ("127.0.0.1:1", "is 127.0.0.1:1, and this cannot be joined: Connection refused"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_sentence(
    address: str, told: str, tmp_path: Path
) -> None:
    data = sweep_data(tmp_path, engine={**RAY, "address": address})
    with pytest.raises(LudusError, match=told):
        Sweeper(data).sweep(root=tmp_path, show_on="none")


def test_more_gpus_than_this_machine_has_are_refused_before_ray_starts(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, engine={**RAY, "workers": 512, "gpus_per_worker": 1.0})
    with pytest.raises(
        ConfigError, match=r"is 1 for 512 workers, and this machine has [0-9]+ GPUs"
    ):
        Sweeper(data).sweep(root=tmp_path, show_on="none")
    assert not (tmp_path / "climb").exists()


def test_a_machine_looks_whether_it_sees_the_directory_of_the_sweep(tmp_path: Path) -> None:
    lock = tmp_path / "LOCK"
    lock.write_text("since 1")
    given = {"lock": str(lock), "lock_text": "since 2", "versions": versions()}
    found = json.loads(Host().begin(json.dumps(given)))
    assert not found["sees"]
    with pytest.raises(LudusError, match=f"does not see {tmp_path}; keep the sweep in a directory"):
        check_machine(found, str(tmp_path))
    missing = {**given, "lock": str(tmp_path / "elsewhere/LOCK")}
    assert not json.loads(Host().begin(json.dumps(missing)))["sees"]


def test_another_version_on_a_machine_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("since 1")
    other = {**versions(), "torch": "1.0.0"}
    given = {"lock": str(tmp_path / "LOCK"), "lock_text": "since 1", "versions": other}
    # It starts no worker there: ludus of that version might not know the run.
    found = json.loads(Host().begin(json.dumps(given)))
    assert found["sees"]
    found["versions"]["torch"] = "1.0.0"
    with pytest.raises(
        LudusError, match=r"has torch 1\.0\.0, and this one has .*; install the same"
    ):
        check_machine(found, str(tmp_path))


def test_a_script_cannot_give_actors_a_function(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, engine=RAY)
    with pytest.raises(ConfigError, match=r"'engine\.kind' is ray: set it to inline"):
        Sweeper(data).sweep(make_trainer_fn=lambda config: None, root=tmp_path)  # type: ignore[arg-type, return-value]
