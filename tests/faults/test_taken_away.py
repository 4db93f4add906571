"""Fault 9: a run directory that is moved, removed or taken while it is trained in ends the run aloud."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import RunTaken
from ludus.store import checkpoint
from ludus.store.lock import RunLock
from tests.faults.small_run import contents, ending, events, small_config, train
from tests.faults.warm import WarmProcess


def wait_for_writer() -> None:
    """Return when nothing is being written."""
    for thread in threading.enumerate():
        if thread.name == "ludus-saver":
            thread.join()


def once(deed: Callable[[], None]) -> Callable[[Any], None]:
    """Return a hook that does something at the end of the first epoch."""

    def hook(trainer: Any) -> None:
        if trainer.epoch == 0:
            deed()

    return hook


def test_a_run_moved_while_it_is_trained_stops_and_goes_on_from_its_new_place(
    tmp_path: Path, right_ending: dict[str, Any]
) -> None:
    old, new = tmp_path / "run", tmp_path / "my new place"
    with pytest.raises(RunTaken, match="was moved or removed while this process trained"):
        train(tmp_path, "run", each_epoch=once(lambda: old.rename(new)))
    assert not old.exists()
    assert events(new)[-1]["event"] != "finished"
    # The name is one that a new run could not be given.
    result = train(tmp_path, "my new place")
    assert result.status == "finished"
    assert result.exact
    assert ending(new) == right_ending


def gone(run: Path) -> None:
    """Remove a directory between two writes: one under way could make a part of it again."""
    wait_for_writer()
    shutil.rmtree(run)


def test_a_run_removed_while_it_is_trained_is_not_half_made_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunTaken, match="was moved or removed"):
        train(tmp_path, "run", each_epoch=once(lambda: gone(run)))
    assert not run.exists()


POINTS = (
    "segments", "made", "state", "tensors", "manifest", "filled", "renamed", "verified",
    "model made", "model filled", "model renamed", "publish made", "publish filled",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_run_taken_away_within_a_write_is_not_half_made_again(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, passed = tmp_path / "run", []

    def take_away(now: str) -> None:
        passed.append(now)
        if now == point and passed.count(point) == 2:
            run.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(checkpoint, "passed", take_away)
    with pytest.raises(RunTaken, match="was moved or removed"):
        train(tmp_path, "run")
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_a_run_that_ends_without_another_save_says_so_too(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def remove(trainer: Any) -> None:
        if trainer.epoch == 2:
            gone(run)

    with pytest.raises(RunTaken, match="was moved or removed"):
        train(tmp_path, "run", each_epoch=remove)
    assert not run.exists()


def test_the_command_exits_with_one_sentence(tmp_path: Path, warm: WarmProcess) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(small_config(name="gone").to_yaml())
    words = ["train", str(config), "--root", str(tmp_path / "runs")]
    pid = warm.start("command", words=words, sleep_at=3, sleep_seconds=1.0)
    warm.wait_for("asleep", pid)
    (tmp_path / "runs" / "gone").rename(tmp_path / "elsewhere")
    assert warm.wait(pid) == 1
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_run_whose_lock_is_deleted_stops_before_it_writes_beside_another(
    is_replaced: bool, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    before: dict[str, Any] = {}

    def delete() -> None:
        wait_for_writer()
        (run / "LOCK").unlink()
        if is_replaced:
            (run / "LOCK").write_text("another's")
        before.update(contents(run))

    with pytest.raises(RunTaken, match=r"LOCK of .* was removed or replaced"):
        train(tmp_path, "run", each_epoch=once(delete))
    after = contents(run)
    # The log goes on until the next save; nothing else does.
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed <= {"metrics.jsonl", "timing.jsonl"}


def test_a_lock_knows_whether_it_is_still_the_one(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        lock.check()
        (tmp_path / "LOCK").rename(tmp_path / "other")
        with pytest.raises(RunTaken):
            lock.check()
        (tmp_path / "other").rename(tmp_path / "LOCK")
        lock.check()
