"""Workers of a sweep die, hang and fail alone: the sweep comes to its end, and each trial counts once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ludus.core.errors import ConfigError, LudusError
from ludus.sweep import Sweeper, SweepResult
from ludus.sweep.engines.local import LocalEngine
from tests.sweep.small import (
    ASHA,
    LOCAL,
    SAMPLERS,
    among,
    batches,
    sweep_data,
    swept,
    within,
)
from tests.sweep.test_killed import keys_of

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess

pytestmark = pytest.mark.usefixtures("warm_children")


def of_moods(folder: Path, *moods: str, **changed: Any) -> SweepResult:
    space = {"mood": among(*moods)}
    more = {"engine": LOCAL, "budget__max_trials": 99, **changed}
    return swept(folder, space=space, sampler=SAMPLERS["grid"], **more)


@pytest.mark.covers("000-D15")
def test_a_trial_that_raises_dies_or_takes_all_memory_has_failed_and_the_others_are_whole(
    tmp_path: Path,
) -> None:
    result = of_moods(tmp_path, "raises", "dies", "eats", "nan", "well")
    assert result.status == "finished"
    assert [trial.number for trial in result.trials] == list(range(5))
    told = {str(trial.point["mood"]): trial for trial in result.trials}
    assert [told[mood].state for mood in told] == ["failed"] * 4 + ["complete"]
    assert told["raises"].reason == "ValueError: the rope broke"
    assert "was ended by SIGKILL" in str(told["dies"].reason)
    assert str(told["eats"].reason).startswith("out of memory: ")
    assert told["nan"].reason == "hill/score was never a finite number"
    keys = keys_of(tmp_path)
    assert len(keys) == len(set(keys)) == 1 + 3 * 5
    assert of_moods(tmp_path, "raises", "dies", "eats", "nan", "well").table() == result.table()


def test_a_trial_that_hangs_is_killed_and_the_next_one_runs(tmp_path: Path) -> None:
    engine = {**LOCAL, "workers": 1, "hang_seconds": 4.0}
    result = of_moods(tmp_path, "hangs", "well", engine=engine)
    assert [trial.state for trial in result.trials] == ["failed", "complete"]
    assert result.trials[0].reason == "hung: no boundary for 4 seconds"


def test_a_worker_may_take_only_so_much_memory(tmp_path: Path) -> None:
    engine = {**LOCAL, "workers": 1, "memory_gb": 3.0}
    result = of_moods(tmp_path, "dines", engine=engine)
    assert "out of memory" in str(result.trials[0].reason)
    engine = {**engine, "memory_gb": None}
    (tmp_path / "more").mkdir()
    assert of_moods(tmp_path / "more", "dines", engine=engine).trials[0].state == "complete"


def test_a_limit_that_only_linux_has_is_refused_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.sweep.pool.sys", SimpleNamespace(platform="darwin"))
    with pytest.raises(ConfigError, match=r"'engine.memory_gb' is 3, .*only Linux .*not darwin"):
        of_moods(tmp_path, "well", engine={**LOCAL, "memory_gb": 3.0})
    assert not any(tmp_path.rglob("sweep.yaml"))
    LocalEngine(LocalEngine.Config(**LOCAL))


def test_trials_of_a_sweep_that_all_fail_have_no_best(tmp_path: Path) -> None:
    result = of_moods(tmp_path, "raises", engine={"kind": "inline"})
    assert result.best is None
    assert "1 of 1 trials failed, the first because of: ValueError: the rope broke" in str(
        result.reason
    )


def test_workers_and_this_process_make_the_same_sweep(tmp_path: Path) -> None:
    tables = []
    for engine in (LOCAL, {"kind": "inline"}):
        folder = tmp_path / str(engine["kind"])
        folder.mkdir()
        common = batches(pruner=ASHA, sampler=SAMPLERS["tpe"], budget__max_trials=9)
        tables.append(swept(folder, engine=engine, **common).table())
    assert tables[0] == tables[1]
    assert {"pruned", "complete"} == {row["state"] for row in tables[0]}


def test_seeds_of_a_trial_run_at_once_where_workers_would_be_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    launch = LocalEngine.launch

    def launched(self: LocalEngine, task: Any) -> None:
        nonlocal most
        launch(self, task)
        most = max(most, sum(worker.task is not None for worker in self._workers))

    monkeypatch.setattr(LocalEngine, "launch", launched)
    result = swept(tmp_path, engine=LOCAL, budget__max_trials=1, seeds="0-3")
    assert list(result.trials[0].runs) == [0, 1, 2, 3]
    assert most == 2


def test_two_sweepers_on_one_directory_are_one_too_many(warm: WarmProcess, tmp_path: Path) -> None:
    data = sweep_data(tmp_path)
    (tmp_path / "sweeps/climb").mkdir(parents=True)
    holder = warm.start("hold", path=str(tmp_path / "sweeps/climb"))
    warm.wait_for("holding", holder)
    with pytest.raises(
        LudusError, match=f"is in use by process {holder} on .*; wait for it, or stop"
    ):
        Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    os.kill(holder, signal.SIGKILL)
    warm.wait(holder)
    assert Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none").status == "finished"


def test_workers_end_with_the_sweeper_that_is_killed_and_another_goes_on(
    warm: WarmProcess, tmp_path: Path
) -> None:
    data = sweep_data(
        tmp_path, engine={**LOCAL, "workers": 1}, space={"mood": among("hangs")}, seeds=[0],
        sampler=SAMPLERS["grid"],
    )  # fmt: skip
    pid = warm.start("sweep", folder=str(tmp_path), data=data, at=None, count=0, wrong="nothing")
    log = tmp_path / "sweeps/climb/runs/0000-seed0/metrics.jsonl"
    while not (log.exists() and log.read_bytes().count(b"\n") >= 2):
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE, warm.output(pid)
    workers = psutil.Process(pid).children(recursive=True)
    assert len(workers) == 1
    os.kill(pid, signal.SIGKILL)
    warm.wait(pid)
    psutil.wait_procs(workers, timeout=60)
    assert not [worker for worker in workers if worker.is_running()]
    # The same trial, taken up from its checkpoint: it was asked once, and counts once.
    os.truncate(tmp_path / "hill.yaml", 0)
    sweep_data(tmp_path)
    data["engine"] = {**LOCAL, "workers": 1, "hang_seconds": 2.0}
    result = Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    assert [trial.state for trial in result.trials] == ["failed"]
    assert log.read_bytes().count(b"\n") == 2


def test_a_script_cannot_give_workers_a_function(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, engine=LOCAL)
    with pytest.raises(ConfigError, match="make_trainer_fn stays in this process"):
        Sweeper(data).sweep(make_trainer_fn=lambda config: None, root=tmp_path)  # type: ignore[arg-type, return-value]


def test_a_kind_that_workers_do_not_know_is_a_failed_trial_that_says_so(tmp_path: Path) -> None:
    from ludus.config import registry

    data = sweep_data(tmp_path, engine={**LOCAL, "workers": 1}, space={"x": within(0.0, 1.0)})
    plugins = list(registry.loaded_plugins)
    registry.loaded_plugins.clear()
    try:
        result = Sweeper(data).sweep(count=1, root=tmp_path / "sweeps", show_on="none")
    finally:
        registry.loaded_plugins[:] = plugins
    assert "no trainer kind is named 'hill'" in str(result.trials[0].reason)
