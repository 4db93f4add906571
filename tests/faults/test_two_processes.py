"""Fault 7: one process per run directory; the second is told who is there, and writes nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.core.errors import RunError
from ludus.store.lock import RunLock, is_locked
from tests.faults.small_run import contents, interrupt_after, train
from tests.faults.warm import WarmProcess


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that can be gone on with."""
    root = tmp_path_factory.mktemp("two")
    assert train(root, "run", each_epoch=interrupt_after(1)).status == "interrupted"
    return root / "run"


@pytest.fixture
def holder(run: Path, warm: WarmProcess) -> Iterator[int]:
    """Another process that holds it."""
    pid = warm.start("hold", path=str(run))
    warm.wait_for("holding", pid)
    yield pid
    os.kill(pid, signal.SIGKILL)
    assert warm.wait(pid) == -9


def test_the_second_process_is_told_who_is_there_and_writes_nothing(run: Path, holder: int) -> None:
    before = contents(run)
    with pytest.raises(RunError, match=f"is in use by process {holder} on "):
        train(run.parent, "run")
    assert contents(run) == before
    assert is_locked(run)


def test_the_second_process_exits_with_one_sentence(
    run: Path, holder: int, warm: WarmProcess
) -> None:
    code, output = warm.run("command", words=["resume", str(run)])
    assert code == 1
    assert output.startswith("ludus: ")
    assert f"process {holder}" in output
    assert "Traceback" not in output


def test_a_run_can_be_looked_at_while_it_is_held(run: Path, holder: int, warm: WarmProcess) -> None:
    code, output = warm.run("command", words=["runs", "--root", str(run.parent), "--json"])
    assert code == 0
    assert json.loads(output)["runs"][0]["status"] == "running"
    assert is_locked(run)


def test_a_stale_lock_file_is_no_obstacle(run: Path, warm: WarmProcess) -> None:
    pid = warm.start("hold", path=str(run))
    warm.wait_for("holding", pid)
    os.kill(pid, signal.SIGKILL)
    assert warm.wait(pid) == -9
    assert json.loads((run / "LOCK").read_text())["pid"] == pid
    assert not is_locked(run)
    with RunLock(run):
        assert json.loads((run / "LOCK").read_text())["pid"] == os.getpid()


def test_a_killed_parent_with_a_live_child_does_not_keep_the_lock(
    run: Path, warm: WarmProcess
) -> None:
    pid = warm.start("hold", path=str(run), child_too=True)
    child = int(warm.wait_for("holding", pid).split()[-1])
    os.kill(pid, signal.SIGKILL)
    warm.wait(pid)
    try:
        os.kill(child, 0)
        with RunLock(run):
            assert json.loads((run / "LOCK").read_text())["pid"] == os.getpid()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.covers("003-D7")
def test_two_processes_that_start_at_once_make_one_run(tmp_path: Path, warm: WarmProcess) -> None:
    pids = [warm.start("go", root=str(tmp_path)) for _ in range(3)]
    codes = sorted(warm.wait(pid) for pid in pids)
    said = "".join(warm.output(pid) for pid in pids)
    # One that comes late may find the run ended already, and has nothing to do.
    assert codes[0] == 0
    assert said.count("is in use by") == sum(code != 0 for code in codes)
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("started") == 1
    assert {event["event"] for event in events} <= {
        "started",
        "resumed",
        "evaluated_weights",
        "first_checkpoint",
        "finished",
    }


def test_the_same_process_twice_is_refused(tmp_path: Path) -> None:
    heard: list[str] = []

    def begin_again(trainer: object) -> None:
        with pytest.raises(RunError, match="in use by this very process") as refusal:
            train(tmp_path, "run")
        heard.append(str(refusal.value))

    assert train(tmp_path, "run", each_epoch=begin_again, max_epochs=2).status == "finished"
    assert len(heard) == 2
