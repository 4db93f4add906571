"""Fault 18: signals pause a run and lose nothing; a directory that cannot be written is told at once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.listing import summary
from ludus.core.errors import LudusError, RunError
from ludus.show.report.page import write_report
from ludus.store.directory import found_run
from tests.faults.small_run import ending, events, interrupt_now, small_config, train
from tests.faults.warm import WarmProcess

SLOW = 0.05


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The words of the command that begins the small run."""
    (tmp_path / "small.yaml").write_text(small_config().to_yaml())
    return ["train", str(tmp_path / "small.yaml"), "--root", str(tmp_path), "--run", "run"]


def wait_for_steps(path: Path) -> None:
    """Return once a run has saved something."""
    end = time.monotonic() + 300
    while time.monotonic() < end and not list(path.glob("checkpoints/*/manifest.json")):
        time.sleep(0.01)


def resume(path: Path, warm: WarmProcess) -> None:
    code, output = warm.run("command", words=["resume", str(path)])
    assert code == 0, output


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_first_signal_saves_says_how_to_go_on_and_exits_with_0(
    number: signal.Signals,
    words: list[str],
    warm: WarmProcess,
    right_ending: dict[str, Any],
    tmp_path: Path,
) -> None:
    pid = warm.start("command", words=words, seconds_a_step=SLOW)
    wait_for_steps(tmp_path / "run")
    os.kill(pid, number)
    assert warm.wait(pid) == 0
    assert f"{number.name}: saving and stopping when the next boundary is reached" in warm.output(
        pid
    )
    assert f"ludus resume {tmp_path}/run" in warm.output(pid).replace("\n", "")
    assert events(tmp_path / "run")[-1]["event"] == "interrupted"
    resume(tmp_path / "run", warm)
    assert ending(tmp_path / "run") == right_ending


def test_the_last_metrics_before_a_signal_are_told_before_the_way_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def third(trainer: Any) -> None:
        if trainer.run.counters["opt_steps"] == 3:
            interrupt_now(trainer)

    changes = {"settings.display": "plain", "log_every_opt_steps": 1}
    assert train(tmp_path, "run", each_step=third, **changes).status == "interrupted"
    out = capsys.readouterr().out
    metrics, way = out.partition("to go on")[::2]
    assert "opt_steps 3" in metrics.splitlines()[-1]
    assert "train/" not in way


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_second_signal_stops_at_once_with_130_and_the_run_resumes_exactly(
    number: signal.Signals,
    words: list[str],
    warm: WarmProcess,
    right_ending: dict[str, Any],
    tmp_path: Path,
) -> None:
    pid = warm.start("command", words=words, sleep_at=5, sleep_seconds=1200.0)
    warm.wait_for("asleep", pid)
    os.kill(pid, number)
    warm.wait_for("once more stops at once", pid)
    start = time.monotonic()
    os.kill(pid, number)
    assert warm.wait(pid) == 130
    # The step that was interrupted sleeps for twenty minutes.
    assert time.monotonic() - start < 600
    assert "Traceback" not in warm.output(pid)
    resume(tmp_path / "run", warm)
    assert ending(tmp_path / "run") == right_ending


def test_a_run_that_was_stopped_at_once_is_listed_as_interrupted(
    tmp_path: Path, right_ending: dict[str, Any]
) -> None:
    def twice(trainer: Any) -> None:
        if trainer.run.counters["opt_steps"] == 3:
            trainer.run.interrupted = True
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, "run", each_step=twice)
    assert events(tmp_path / "run")[-1]["event"] == "interrupted"
    told = summary(found_run(tmp_path / "run"))
    assert (told["status"], told["reason"]) == ("interrupted", "stopped at once")
    page = write_report([tmp_path / "run"]).read_text()
    assert "fix this, then run" not in page
    train(tmp_path, "run")
    assert ending(tmp_path / "run") == right_ending


def test_a_run_that_is_halted_and_let_go_ends_as_if_nothing_had_been(
    words: list[str], warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    pid = warm.start("command", words=words, seconds_a_step=SLOW)
    wait_for_steps(tmp_path / "run")
    for _ in range(3):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
    assert warm.wait(pid) == 0
    told = [event["event"] for event in events(tmp_path / "run")]
    assert [one for one in told if one != "evaluated_weights"] == [
        "started", "first_checkpoint", "finished",
    ]  # fmt: skip
    assert ending(tmp_path / "run") == right_ending


def test_the_handlers_of_the_program_around_are_put_back(tmp_path: Path) -> None:
    def mine(number: int, frame: Any) -> None:
        """Stands for a handler of the user's own."""

    before = signal.signal(signal.SIGTERM, mine)
    try:
        train(tmp_path, "run", max_epochs=1)
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that nobody, not even root, may write to."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    (folder / "begun").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["begun", "new"])
def test_a_read_only_directory_is_a_clear_error(name: str, read_only: Path) -> None:
    with pytest.raises(RunError, match=f"{name} cannot be written: Read-only file system"):
        train(read_only, name)


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        train(tmp_path / "file", "run")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_that_became_read_only_cannot_be_resumed_and_says_so(
    tmp_path: Path, read_only: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,rw", str(read_only)], check=True)
    train(read_only, "run", max_epochs=1)
    subprocess.run(["mount", "-o", "remount,ro", str(read_only)], check=True)
    with pytest.raises(LudusError, match="Read-only file system"):
        train(read_only, "run", max_epochs=2)


def test_a_hangup_told_twice_still_saves_and_one_after_another_signal_changes_nothing(
    words: list[str], warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    # A shell and the system each send one when a terminal is closed.
    pid = warm.start("command", words=words, seconds_a_step=SLOW)
    wait_for_steps(tmp_path / "run")
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
        time.sleep(0.01)
    assert warm.wait(pid) == 0
    assert events(tmp_path / "run")[-1]["event"] == "interrupted"
    resume(tmp_path / "run", warm)
    assert ending(tmp_path / "run") == right_ending


def test_a_run_under_nohup_goes_on_after_a_hangup(
    words: list[str], warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    pid = warm.start("command", words=words, seconds_a_step=SLOW, ignored=[signal.SIGHUP])
    wait_for_steps(tmp_path / "run")
    os.kill(pid, signal.SIGHUP)
    assert warm.wait(pid) == 0
    assert events(tmp_path / "run")[-1]["event"] == "finished"
    assert ending(tmp_path / "run") == right_ending


def test_a_terminal_that_is_closed_under_a_run_costs_nothing(
    words: list[str], warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    master, slave = pty.openpty()
    words = [*words, "settings.display=rich"]
    pid = warm.start("command", words=words, seconds_a_step=SLOW, terminal=os.ttyname(slave))
    wait_for_steps(tmp_path / "run")
    os.close(slave)
    os.close(master)
    assert warm.wait(pid) == 129
    assert events(tmp_path / "run")[-1]["event"] == "interrupted"
    resume(tmp_path / "run", warm)
    assert ending(tmp_path / "run") == right_ending
