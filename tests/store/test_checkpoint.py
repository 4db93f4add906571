"""A checkpoint is written whole, verified before it is believed, and collected only when it is old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.core.errors import CheckpointError, StorageError
from ludus.core.states import fitting
from ludus.store import checkpoint, codec
from ludus.store.local import LocalStorage
from ludus.store.manifest import sealed
from ludus.store.models import write_model

STATE = {"run": {"boundaries": 3}, "model": {"weight": torch.arange(4.0)}}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def about(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"offsets": {}, "fingerprint": {"cpu": "x"}, "exact": True}
    fields |= {"inexact_because": [], "best": None, "models": []}
    return fields | changes


def save(storage: LocalStorage, number: int, **changes: Any) -> None:
    checkpoint.write(storage, number, codec.encode(STATE), about(**changes))


def best(number: int) -> dict[str, Any]:
    return {"metric": "loss", "score": 0.5, "model": f"models/best-{number:010d}"}


def save_with_best(storage: LocalStorage, number: int, best_number: int) -> None:
    if not storage.exists(f"models/best-{best_number:010d}"):
        write_model(storage, best(best_number)["model"], {"w": torch.ones(2)}, {})
    save(storage, number, best=best(best_number), models=[best(best_number)["model"]])


@pytest.mark.covers("000-S4")
def test_a_checkpoint_reads_back_as_it_was_with_all_that_was_said_of_it(
    storage: LocalStorage,
) -> None:
    storage.append("metrics.jsonl").write(b"one\n")
    save(storage, 3, offsets=storage.offsets(), exact=False, inexact_because=["a stream"])
    saved = checkpoint.read(storage, 3)
    assert saved.number == 3
    assert checkpoint.digest_of(saved.state) == checkpoint.digest_of(STATE)
    assert saved.manifest["offsets"] == {"metrics.jsonl": 4}
    assert saved.manifest["inexact_because"] == ["a stream"]


def test_the_newest_is_the_highest_number_whatever_the_clock_says(
    storage: LocalStorage, tmp_path: Path
) -> None:
    for number in (5, 20, 100):
        save(storage, number)
    os.utime(tmp_path / "checkpoints/0000000005", (2e9, 2e9))
    found = checkpoint.read_newest(storage, damaged=pytest.fail)
    assert found is not None
    assert found.number == 100


def test_a_run_without_checkpoints_has_no_newest(storage: LocalStorage) -> None:
    assert checkpoint.read_newest(storage, damaged=pytest.fail) is None
    (storage.make("checkpoints") / "0000000001.tmp-5").mkdir()
    (storage.make("checkpoints") / "notes").mkdir()
    assert checkpoint.read_newest(storage, damaged=pytest.fail) is None


def test_reading_changes_nothing_on_disk(storage: LocalStorage, tmp_path: Path) -> None:
    save(storage, 1)
    save(storage, 2)
    (tmp_path / "checkpoints/0000000002/state.json").write_bytes(b"{}")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    told: list[str] = []
    found = checkpoint.read_newest(storage, damaged=told.append)
    assert found is not None
    assert found.number == 1
    assert len(told) == 1
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_number_written_again_keeps_what_stood_there_aside(storage: LocalStorage) -> None:
    save(storage, 2)
    save(storage, 2)
    assert storage.names("checkpoints") == ["0000000002", "0000000002.aside-0"]
    assert checkpoint.numbers(storage) == [2]


def test_those_after_a_number_are_set_aside_and_the_rest_stay(storage: LocalStorage) -> None:
    for number in (1, 2, 3):
        save(storage, number)
    checkpoint.set_newer_aside(storage, 1)
    assert checkpoint.numbers(storage) == [1]
    assert len(storage.names("checkpoints")) == 3


def test_the_log_is_durable_before_the_manifest_promises_its_length(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(checkpoint, "passed", order.append)
    monkeypatch.setattr(storage, "sync_appends", lambda: order.append("log"))
    save(storage, 1)
    assert order.index("tensors") < order.index("log") < order.index("manifest")


def test_collecting_keeps_the_last_and_the_models_they_name(storage: LocalStorage) -> None:
    for number, best_number in ((2, 2), (4, 4), (6, 4), (8, 4)):
        save_with_best(storage, number, best_number)
    checkpoint.collect(storage, keep_last=2)
    assert checkpoint.numbers(storage) == [6, 8]
    assert storage.names("models") == ["best-0000000004"]


def test_collecting_leaves_a_best_model_that_the_next_checkpoint_will_name(
    storage: LocalStorage,
) -> None:
    save_with_best(storage, 4, 4)
    write_model(storage, "models/best-0000000006", {"w": torch.ones(2)}, {})
    write_model(storage, "models/milestone", {"w": torch.ones(2)}, {})
    checkpoint.collect(storage, keep_last=2)
    assert storage.names("models") == ["best-0000000004", "best-0000000006", "milestone"]


def test_a_checkpoint_whose_model_changed_is_not_believed(
    storage: LocalStorage, tmp_path: Path
) -> None:
    save_with_best(storage, 4, 4)
    checkpoint.read(storage, 4)
    note = tmp_path / "models/best-0000000004/model.json"
    note.write_bytes(note.read_bytes().replace(b"{", b'{"more":1,', 1))
    with pytest.raises(CheckpointError, match=r"best-0000000004 has changed"):
        checkpoint.read(storage, 4)


def test_a_checkpoint_that_is_used_without_its_best_model_is_not_called_skipped(
    storage: LocalStorage, tmp_path: Path
) -> None:
    for number in (5, 6, 7):
        save_with_best(storage, number, 4)
    (tmp_path / "models/best-0000000004/weights.safetensors").unlink()
    (tmp_path / "checkpoints/0000000007/state.json").write_bytes(b"{}")
    told: list[str] = []
    saved = checkpoint.read_newest(storage, damaged=told.append)
    assert saved is not None
    assert saved.number == 6
    assert saved.lost_models == ("models/best-0000000004",)
    assert [text.partition(" is damaged")[0] for text in told] == ["checkpoint 7"]


def test_who_may_lose_the_best_model_gets_the_newest_state(
    storage: LocalStorage, tmp_path: Path
) -> None:
    save_with_best(storage, 5, 4)
    save_with_best(storage, 7, 6)
    (tmp_path / "models/best-0000000006/weights.safetensors").unlink()
    told: list[str] = []
    older = checkpoint.read_newest(storage, damaged=told.append)
    assert older is not None
    assert older.number == 5
    assert len(told) == 1
    saved = checkpoint.read_newest(storage, damaged=pytest.fail, may_lose_best=True)
    assert saved is not None
    assert saved.number == 7
    assert saved.manifest["best"] is None


def test_what_the_newest_manifest_tells_is_had_though_its_state_is_damaged(
    storage: LocalStorage, tmp_path: Path
) -> None:
    assert checkpoint.last_manifest(storage) is None
    save_with_best(storage, 5, 4)
    save_with_best(storage, 7, 6)
    (tmp_path / "checkpoints/0000000007/state.json").write_bytes(b"{}")
    told = checkpoint.last_manifest(storage)
    assert told is not None
    assert (told.number, told.state, told.manifest["best"]) == (7, {}, best(6))
    (tmp_path / "checkpoints/0000000007/manifest.json").write_bytes(b"{}")
    older = checkpoint.last_manifest(storage)
    assert older is not None
    assert older.number == 5
    (tmp_path / "checkpoints/0000000005/manifest.json").unlink()
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        checkpoint.last_manifest(storage)


def test_a_checkpoint_cannot_name_a_model_that_is_not_there(storage: LocalStorage) -> None:
    with pytest.raises(StorageError, match=r"model\.json"):
        save(storage, 1, models=["models/nothing"])
    assert storage.names("checkpoints") == []


@pytest.mark.parametrize(
    "changes",
    [{"offsets": {"config.yaml": 3}}, {"best": {"metric": "loss"}}, {"exact": "yes"}, {"more": 1}],
    ids=str,
)
def test_what_could_not_be_read_back_is_not_written(
    changes: dict[str, Any], storage: LocalStorage
) -> None:
    with pytest.raises(CheckpointError):
        save(storage, 1, **changes)
    assert storage.names("checkpoints") == []


def test_a_state_too_large_to_be_read_back_is_not_written(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_STATE", 1000)
    tree = codec.encode({"part": {"list": list(range(1000))}})
    with pytest.raises(CheckpointError, match="keep long records in arrays"):
        checkpoint.write(storage, 1, tree, about())
    assert storage.names("checkpoints") == []


def test_a_seal_covers_every_field() -> None:
    fields = {"number": 1, "files": {}, "segments": [], **about(models={})}
    seals = {sealed(fields)["seal"]}
    for change in ({"number": 2}, {"exact": False}, {"offsets": {"a.jsonl": 1}}, {"best": best(1)}):
        seals.add(sealed(fields | change)["seal"])
    assert len(seals) == 5


def test_equal_states_have_equal_digests_and_others_do_not() -> None:
    digest = checkpoint.digest_of({"a": {"x": torch.ones(2)}, "b": {"n": 1}})
    assert digest == checkpoint.digest_of({"a": {"x": torch.ones(2)}, "b": {"n": 1}})
    others: list[dict[str, Any]] = [
        {"a": {"x": torch.ones(2)}, "b": {"n": True}},
        {"a": {"x": torch.ones(2)}, "b": {"n": 1.0}},
        {"a": {"x": torch.ones(2, dtype=torch.float64)}, "b": {"n": 1}},
        {"a": {"x": torch.ones(2, 1)}, "b": {"n": 1}},
        {"a": {"y": torch.ones(2)}, "b": {"n": 1}},
    ]
    assert digest not in {checkpoint.digest_of(other) for other in others}
    assert checkpoint.digest_of(others[0], leave_out=["b"]) == checkpoint.digest_of(
        {"a": {"x": torch.ones(2)}}
    )


def test_a_part_that_chokes_on_its_state_is_a_typed_error() -> None:
    with pytest.raises(CheckpointError, match=r"'optimizer' does not fit it \(KeyError"):
        with fitting("optimizer"):
            raise KeyError("num_steps")
