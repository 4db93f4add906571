"""The saver takes a state in an instant, writes it behind, and keeps nothing quiet."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.config.base import CheckpointSettings
from ludus.core.errors import CheckpointError, LudusError, RunTaken, StorageError
from ludus.core.run import Run
from ludus.session.saver import Saver
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.store.models import read_model


class Part:
    """A vector that training changes in place."""

    def __init__(self) -> None:
        self.values = torch.zeros(1000)
        self.odd: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "odd": self.odd}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values = state["values"]


class Bench:
    """A saver with all it needs: a disk, one part, a journal."""

    def __init__(self, root: Path, **settings: Any) -> None:
        given: dict[str, Any] = {"every_seconds": 0.0, "every_stages": 0, "every_opt_steps": 0}
        given |= {"every_epochs": 0, "keep_last": 2, "on_failure": "continue"}
        self.storage = LocalStorage(root)
        self.part = Part()
        self.run = Run()
        self.told: list[str] = []
        self.best: dict[str, Any] | None = None
        self.saver = Saver(
            self.storage,
            CheckpointSettings(**{**given, **settings}),
            {"run": self.run, "part": self.part},
            about=self.about,
            tell=self.hear,
        )

    def hear(self, event: str, reason: str | None = None) -> None:
        """Write down what went wrong."""
        if reason is not None:
            self.told.append(reason)

    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"fingerprint": {}, "exact": True, "inexact_because": []}
        return about | {"best": self.best, "models": [self.best["model"]] if self.best else []}

    def step(self, **counters: int) -> None:
        """Come to the next boundary, as the loop does."""
        self.run.boundaries += 1
        self.run.counters.update(counters)
        self.saver(self.run)

    def saved(self) -> list[int]:
        self.saver.wait()
        return checkpoint.numbers(self.storage)

    def block(self) -> Path:
        """Make the next checkpoint fail, whoever we are: put a file where its directory should be."""
        path = self.storage.root / "checkpoints"
        path.write_bytes(b"in the way")
        return path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"every_opt_steps": 4, "keep_last": 9}, [2, 4, 6]),
        ({"every_epochs": 1, "keep_last": 9}, [3, 6]),
        ({"every_stages": 5, "keep_last": 9}, [5]),
        ({"every_stages": 1, "keep_last": 2}, [5, 6]),
        ({}, []),
    ],
    ids=str,
)
def test_a_state_is_saved_when_a_counter_crosses_its_interval(
    settings: dict[str, int], numbers: list[int], tmp_path: Path
) -> None:
    bench = Bench(tmp_path, **settings)
    for step in range(1, 7):
        bench.step(opt_steps=2 * step, epoch=step // 3)
    assert bench.saved() == numbers


def test_a_state_is_saved_by_the_clock(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_seconds=1e-9)
    for _ in range(16):
        bench.step()
    bench.saver.wait()
    assert bench.saved() == [15, 16]


@pytest.mark.parametrize("ending", ["is_finished", "is_pausing"])
def test_the_last_boundary_is_always_saved_before_the_call_returns(
    ending: str, bench: Bench
) -> None:
    bench.step()
    setattr(bench.run, ending, True)
    bench.step()
    assert checkpoint.numbers(bench.storage) == [2]


def test_what_training_changes_after_the_save_is_not_in_it(bench: Bench) -> None:
    bench.part.values.fill_(1.0)
    bench.run.boundaries = 1
    bench.saver.save(bench.run)
    bench.part.values.fill_(2.0)
    assert bench.saved() == [1]
    assert checkpoint.read(bench.storage, 1).state["part"]["values"].eq(1.0).all()


def test_saving_changes_neither_the_parts_nor_the_random_numbers(bench: Bench) -> None:
    before = checkpoint.digest_of(bench.part.state_dict()), torch.get_rng_state()
    bench.run.is_finished = True
    bench.step()
    assert checkpoint.digest_of(bench.part.state_dict()) == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_writing_happens_in_another_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    monkeypatch.setattr(checkpoint, "passed", lambda point: threads.add(threading.get_ident()))
    bench.run.is_finished = True
    bench.step()
    assert threads
    assert threading.get_ident() not in threads


def test_the_offset_of_the_log_is_that_of_the_moment_of_saving(bench: Bench) -> None:
    bench.storage.append("metrics.jsonl").write(b"one\n")
    bench.run.boundaries = 1
    bench.saver.save(bench.run)
    bench.storage.append("metrics.jsonl").write(b"two\n")
    bench.saver.wait()
    assert checkpoint.read(bench.storage, 1).manifest["offsets"] == {"metrics.jsonl": 4}


def test_a_save_that_fails_is_told_and_the_next_one_is_tried(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_stages=1)
    obstacle = bench.block()
    bench.step()
    bench.saver._background.wait()
    obstacle.unlink()
    bench.step()
    assert bench.saved() == [2]
    assert len(bench.told) == 1
    assert "checkpoints" in bench.told[0]


def test_whoever_asks_for_it_is_stopped_by_a_save_that_fails(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_stages=1, on_failure="stop")
    bench.block()
    bench.step()
    bench.saver._background.wait()
    with pytest.raises(StorageError, match="checkpoints"):
        bench.step()


def test_a_last_save_that_keeps_failing_is_an_error(bench: Bench) -> None:
    bench.block()
    bench.run.is_finished = True
    with pytest.raises(StorageError, match="checkpoints"):
        bench.step()
    assert len(bench.told) == 3


def test_a_log_that_cannot_be_written_out_makes_the_last_save_fail_aloud(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.storage, "flush_appends", lambda: False)
    bench.run.is_finished = True
    with pytest.raises(StorageError, match="the log is held in memory"):
        bench.step()
    assert bench.saved() == []


def test_a_failure_after_the_last_boundary_is_told_at_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_stages=1)
    bench.block()
    bench.step()
    bench.saver.wait()
    assert len(bench.told) == 1


def test_a_mistake_of_ours_in_the_writer_comes_to_light(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(point: str) -> None:
        raise AssertionError("a mistake of ours")

    bench = Bench(tmp_path, every_stages=1)
    monkeypatch.setattr(checkpoint, "passed", stumble)
    bench.step()
    bench.saver._background.wait()
    with pytest.raises(AssertionError, match="a mistake of ours"):
        bench.step()


def test_a_state_that_cannot_be_saved_is_an_error_at_once_naming_its_path(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_stages=1)
    bench.part.odd = {"deep": [object()]}
    with pytest.raises(CheckpointError, match=r"^/part/odd/deep/0: a object cannot be saved"):
        bench.step()


def test_a_disk_with_too_little_space_is_not_even_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.storage, "free_bytes", lambda: 100)
    bench.run.is_finished = True
    with pytest.raises(StorageError, match="needs 8000 bytes of disk, 100 are free"):
        bench.step()


def weights(value: float) -> dict[str, Tensor]:
    return {"w": torch.full((3,), value)}


def test_a_model_is_written_behind_and_published_with_the_checkpoint_that_names_it(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, every_stages=2)
    bench.best = {"metric": "loss", "score": 1.0, "model": "models/best-0000000001"}
    bench.saver.keep_model("models/best-0000000001", weights(1.0), bench.best)
    bench.step()
    bench.saver._background.wait()
    assert bench.storage.names("models") == ["best-0000000001"]
    bench.step()
    assert bench.saved() == [2]
    assert read_model(bench.storage, "models/best")[1]["score"] == 1.0


def test_a_model_is_kept_as_it_was_though_training_goes_on(bench: Bench) -> None:
    live, note = weights(1.0), {"score": 1.0}
    bench.saver.keep_model("models/m", live, note)
    live["w"].zero_()
    note["score"] = 0.0
    bench.step()
    bench.saver._background.wait()
    kept, about = read_model(bench.storage, "models/m")
    assert torch.equal(kept["w"], torch.ones(3))
    assert about["score"] == 1.0


def test_a_model_can_be_recalled_before_and_after_it_is_on_disk(bench: Bench) -> None:
    bench.saver.keep_model("models/m", weights(1.0), {})
    assert torch.equal(bench.saver.recall_model("models/m")["w"], torch.ones(3))
    assert bench.storage.names("models") == []
    bench.step()
    bench.saver._background.wait()
    assert bench.storage.names("models") == ["m"]
    assert torch.equal(bench.saver.recall_model("models/m")["w"], torch.ones(3))
    with pytest.raises(LudusError):
        bench.saver.recall_model("models/never")


def test_a_model_that_does_not_fit_on_the_disk_waits_for_the_next_save(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_stages=4)
    (tmp_path / "models").write_bytes(b"in the way")
    bench.saver.keep_model("models/m", weights(1.0), {})
    for _ in range(3):
        bench.step()
        bench.saver._background.wait()
    assert len(bench.told) == 1
    assert torch.equal(bench.saver.recall_model("models/m")["w"], torch.ones(3))
    (tmp_path / "models").unlink()
    bench.step()
    assert bench.saved() == [4]
    assert read_model(bench.storage, "models/m")[0]["w"].eq(1.0).all()


def test_whether_a_checkpoint_is_due_is_decided_by_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, every_opt_steps=10)
    answers = {True: False, False: True}
    bench.run.decide = lambda value: answers[value]
    bench.step(opt_steps=5)
    assert bench.saved() == [1], "another process wanted it"
    bench.step(opt_steps=10)
    assert bench.saved() == [1], "another process did not"


def test_a_model_is_not_written_to_a_directory_that_another_run_has_taken(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken() -> None:
        raise RunTaken("the LOCK was replaced")

    monkeypatch.setattr(bench.storage, "check_owned", taken)
    bench.saver.keep_model("models/m", weights(1.0), {})
    with pytest.raises(RunTaken, match="was replaced"):
        bench.step()
    bench.saver.wait()
    assert bench.storage.names("models") == []
