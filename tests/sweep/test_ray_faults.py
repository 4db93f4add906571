"""Whatever of a sweep on Ray is killed, it ends as it would have, or stops with a sentence and goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ludus.core.errors import LudusError
from ludus.sweep import Sweeper, SweepResult
from ludus.sweep.search import Search
from tests.sweep.ray_processes import DRIVER, WORKER, all_of, driver_of, folders, gone, named
from tests.sweep.small import ASHA, LOCAL, RAY, SAMPLERS, among, batches, sweep_data, swept
from tests.sweep.test_killed import ended, keys_of, unlike

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess

pytestmark = pytest.mark.slow

NUM_KILLS = int(os.environ.get("LUDUS_RAY_KILLS", "10"))


def of_moods(folder: Path, *moods: str, **changed: Any) -> SweepResult:
    space = {"mood": among(*moods)}
    more = {"engine": RAY, "budget__max_trials": 99, **changed}
    return swept(folder, space=space, sampler=SAMPLERS["grid"], **more)


def long_runs(folder: Path, engine: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return a sweep whose runs last long enough to be killed in their midst."""
    common = batches(pruner=ASHA, sampler=SAMPLERS["tpe"], batch_size=2, budget__max_trials=8)
    fixed = {"max_steps": 60}
    return sweep_data(folder, engine=engine, fixed=fixed, **{**common, **changed})


def num_logged(folder: Path) -> int:
    """Return how many lines all runs of a sweep have logged."""
    logs = (folder / "sweeps/climb/runs").glob("*/metrics.jsonl")
    return sum(log.read_bytes().count(b"\n") for log in logs)


@pytest.mark.covers("001-M10")
def test_killed_at_random_again_and_again_it_has_the_winner_and_the_bytes_of_a_local_one(
    warm: WarmProcess, tmp_path: Path
) -> None:
    chance, before, num_killed, met = random.Random(5), folders(), 0, []
    for name in ("local", "ray"):
        (tmp_path / name).mkdir()
    data = long_runs(tmp_path / "local", LOCAL)
    common = {"at": None, "count": 0, "wrong": "nothing"}
    code, output = warm.run("sweep", folder=str(tmp_path / "local"), data=data, **common)
    assert code == 0, output
    total = num_logged(tmp_path / "local")
    folder, data = tmp_path / "ray", long_runs(tmp_path / "ray", RAY)
    while True:
        pid = warm.start("sweep", folder=str(folder), data=data, **common)
        aim = num_logged(folder) + chance.randrange(1, max(2, total // NUM_KILLS))
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            if num_killed < NUM_KILLS and num_logged(folder) >= aim:
                met += all_of(pid)
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.005)
        code = warm.wait(pid)
        assert code in (0, -9), warm.output(pid)
        num_killed += code == -9
        if code == 0:
            break
    assert num_killed >= NUM_KILLS // 2
    assert unlike(tmp_path / "local", folder) == []
    keys = keys_of(folder)
    assert len(keys) == len(set(keys)), "a trial or a run was counted twice"
    assert {"complete", "pruned"} <= {row["state"] for row in ended(folder)}
    assert gone(met)
    assert folders() <= before


def test_a_run_that_dies_hangs_or_takes_all_memory_has_failed_as_on_the_engine_local(
    tmp_path: Path,
) -> None:
    engine = {**RAY, "hang_seconds": 4.0, "memory_gb": 3.0}
    result = of_moods(tmp_path, "raises", "dies", "hangs", "dines", "well", engine=engine)
    told = {str(trial.point["mood"]): trial for trial in result.trials}
    assert [told[mood].state for mood in told] == ["failed"] * 4 + ["complete"]
    assert told["raises"].reason == "ValueError: the rope broke"
    assert "was ended by SIGKILL" in str(told["dies"].reason)
    assert told["hangs"].reason == "hung: no boundary for 4 seconds"
    assert str(told["dines"].reason).startswith("out of memory: ")
    keys = keys_of(tmp_path)
    assert len(keys) == len(set(keys)) == 1 + 3 * 5


def while_it_runs(patch: pytest.MonkeyPatch, act: Callable[[], None], *, times: int = 1) -> None:
    """Do something at the third value that a sweep in this process hears of, and again later."""
    logged, heard = Search.logged, 0

    def listen(self: Search, *given: Any) -> str | None:
        nonlocal heard
        heard += 1
        if heard % 20 == 3 and heard < 20 * times:
            act()
        return logged(self, *given)

    patch.setattr(Search, "logged", listen)


def kill(name: str) -> Callable[[], None]:
    """Return a function that kills the first process of the sweep with this name."""

    def act() -> None:
        processes = all_of(os.getpid())
        found = named(processes, name) or [one for one in processes if one.name() == name]
        os.kill(found[0].pid, signal.SIGKILL)

    return act


def test_a_run_whose_actor_is_killed_goes_on_in_another_and_counts_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    root = {name: tmp_path / name / "sweeps" for name in ("one", "two")}
    Sweeper(long_runs(tmp_path / "one", {"kind": "inline"})).sweep(root=root["one"], show_on="none")
    while_it_runs(monkeypatch, kill("ray::Host"), times=2)
    Sweeper(long_runs(tmp_path / "two", RAY)).sweep(root=root["two"], show_on="none")
    assert unlike(tmp_path / "one", tmp_path / "two") == []


@pytest.mark.parametrize("name", ["raylet", "gcs_server", DRIVER])
def test_without_ray_it_stops_with_a_sentence_and_the_same_command_goes_on(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    met: list[psutil.Process] = []
    end = kill(name) if name != DRIVER else lambda: driver_of(os.getpid()).kill()

    def act() -> None:
        met.extend(all_of(os.getpid()))
        assert named(met, WORKER)
        end()

    data, root, before = long_runs(tmp_path, RAY), tmp_path / "sweeps", folders()
    with monkeypatch.context() as patch:
        while_it_runs(patch, act)
        with pytest.raises(LudusError, match="; fix this, then run the same command again"):
            Sweeper(data).sweep(root=root, show_on="none")
    assert gone(met)
    assert folders() <= before
    (tmp_path / "other").mkdir()
    other = long_runs(tmp_path / "other", {"kind": "inline"})
    Sweeper(other).sweep(root=tmp_path / "other/sweeps", show_on="none")
    data["engine"] = {"kind": "inline"}
    Sweeper(data).sweep(root=root, show_on="none")
    assert unlike(tmp_path, tmp_path / "other") == []


def test_a_pause_saves_the_runs_and_ends_the_cluster(warm: WarmProcess, tmp_path: Path) -> None:
    data = long_runs(tmp_path, RAY)
    pid = warm.start("sweep", folder=str(tmp_path), data=data, at=None, count=0, wrong="nothing")
    while num_logged(tmp_path) < 20:
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE, warm.output(pid)
        time.sleep(0.005)
    met = all_of(pid)
    os.kill(pid, signal.SIGINT)
    assert warm.wait(pid) == 0
    assert gone(met)
    events = [path.read_text() for path in tmp_path.glob("sweeps/climb/runs/*/events.jsonl")]
    assert any('"interrupted"' in text for text in events)
    assert not [row for row in ended(tmp_path) if row["state"] == "failed"]
