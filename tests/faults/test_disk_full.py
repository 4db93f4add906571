"""Fault 4: a full disk stops the saving, never the training, and nothing is missing in the end."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import StorageError
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from tests.faults.small_run import EPOCHS, ending, events, left_behind, train
from tests.faults.warm import WarmProcess

# Below a line of the log, below a state, below the tensors, and above all.
LIMITS = [1, 200, 600, 3_000, 8_000, 1_000_000]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


class FullDisk:
    """Fills the disk after one epoch, leaving some bytes, looks at the run while it is full, empties it."""

    def __init__(self, folder: Path, *, spare: int = 0, since: int = 1, until: int) -> None:
        self._folder = folder
        self._spare = spare
        self._since, self._until = since, until
        self.newest = -1

    def __call__(self, trainer: ludus.Trainer) -> None:
        storage, fill, epoch = (
            LocalStorage(self._folder / "run"),
            self._folder / "fill",
            trainer.epoch + 1,
        )
        wait_for_writer()
        if epoch == self._since:
            self.newest = checkpoint.numbers(storage)[-1]
            with fill.open("wb", buffering=0) as file:
                while file.write(bytes(4096)) == 4096 and storage.free_bytes() > self._spare:
                    pass
        elif self._since < epoch < self._until:
            assert checkpoint.numbers(storage)[-1] == self.newest
            checkpoint.read(storage, self.newest)
            assert left_behind(self._folder / "run") == []
        elif epoch == self._until:
            fill.unlink()


def wait_for_writer() -> None:
    """Return when what is being written has been written, or has failed."""
    for thread in threading.enumerate():
        if thread.name == "ludus-saver":
            thread.join()


@pytest.mark.parametrize("spare", [0, 4096, 16384])
def test_training_goes_on_while_the_disk_is_full_and_saving_when_it_is_not(
    spare: int, disk: Path, right_ending: dict[str, Any]
) -> None:
    result = train(disk, "run", each_epoch=FullDisk(disk, spare=spare, until=3))
    assert result.status == "finished"
    told = [event for event in events(disk / "run") if event["event"] == "checkpoint_failed"]
    assert told
    assert all(event["reason"] for event in told)
    assert ending(disk / "run") == right_ending
    assert left_behind(disk / "run") == []


def test_a_disk_that_stays_full_ends_the_run_with_an_error_that_a_resume_makes_good(
    disk: Path, right_ending: dict[str, Any]
) -> None:
    full = FullDisk(disk, until=EPOCHS + 1)
    with pytest.raises(StorageError):
        train(disk, "run", each_epoch=full)
    assert checkpoint.read_newest(LocalStorage(disk / "run"), damaged=pytest.fail) is not None
    (disk / "fill").unlink()
    assert train(disk, "run").status == "finished"
    assert ending(disk / "run") == right_ending


def test_whoever_asks_for_it_is_stopped_when_a_save_fails(disk: Path) -> None:
    settings = {"settings.checkpoint.on_failure": "stop"}
    with pytest.raises(StorageError):
        train(disk, "run", each_epoch=FullDisk(disk, until=3), **settings)
    last = events(disk / "run")[-1]
    # With no space left even the journal may have to do without its last lines.
    assert last["event"] in ("started", "checkpoint_failed", "failed")


def test_a_full_disk_is_not_told_of_at_every_step(disk: Path) -> None:
    settings = {"settings.checkpoint.every_stages": 0, "settings.checkpoint.every_epochs": 1}
    train(disk, "run", each_epoch=FullDisk(disk, since=2, until=3), batch_size=64, **settings)
    told = [event for event in events(disk / "run") if event["event"] == "checkpoint_failed"]
    assert 1 <= len(told) <= 2


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_on_the_size_of_files_is_survived_while_it_lasts(
    limit: int, warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    code, output = warm.run("fill_disk", root=str(tmp_path), limit=limit)
    assert code == 0, output
    told = [event for event in events(tmp_path / "run") if event["event"] == "checkpoint_failed"]
    assert bool(told) == (limit < LIMITS[-1])
    assert ending(tmp_path / "run") == right_ending
    assert left_behind(tmp_path / "run") == []


@pytest.mark.parametrize("limit", LIMITS[:5])
def test_a_limit_that_lasts_is_a_typed_error_and_the_old_checkpoint_is_whole(
    limit: int, warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    code, output = warm.run("fill_disk", root=str(tmp_path), limit=limit, is_for_good=True)
    assert code == 3, output
    assert output.startswith("StorageError: ")
    assert left_behind(tmp_path / "run") == []
    assert checkpoint.read_newest(LocalStorage(tmp_path / "run"), damaged=pytest.fail) is not None
    assert warm.run("go", root=str(tmp_path))[0] == 0
    assert ending(tmp_path / "run") == right_ending
