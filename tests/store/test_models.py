"""A model directory holds weights and a note, is found out if it changes, and can be published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ludus.core.errors import CheckpointError, StorageError
from ludus.nn.model import Model
from ludus.store import checkpoint, models
from ludus.store.local import LocalStorage
from ludus.store.models import mend, publish, read_model, write_model

WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.zeros(2)}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_weights_and_note_come_back(storage: LocalStorage) -> None:
    write_model(storage, "models/best-1", WEIGHTS, {"score": 0.5, "counters": {"epoch": 3}})
    weights, note = read_model(storage, "models/best-1")
    assert weights.keys() == WEIGHTS.keys()
    assert all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert note["score"] == 0.5
    assert note["counters"] == {"epoch": 3}


def test_the_same_weights_make_the_same_bytes(storage: LocalStorage, tmp_path: Path) -> None:
    backwards = dict(reversed(WEIGHTS.items()))
    write_model(storage, "models/one", WEIGHTS, {})
    write_model(storage, "models/two", backwards, {})
    one, two = (tmp_path / "models" / name / "weights.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_writing_a_name_again_replaces_it(storage: LocalStorage) -> None:
    write_model(storage, "models/m", WEIGHTS, {"n": 1})
    write_model(storage, "models/m", {"b": torch.ones(1)}, {"n": 2})
    weights, note = read_model(storage, "models/m")
    assert list(weights) == ["b"]
    assert note["n"] == 2
    assert storage.names("models") == ["m"]


def test_tied_weights_are_written(storage: LocalStorage) -> None:
    tied = torch.ones(3)
    write_model(storage, "models/m", {"in": tied, "out": tied, "part": tied[:2]}, {})
    assert torch.equal(read_model(storage, "models/m")[0]["part"], torch.ones(2))


def test_weights_that_changed_are_refused(storage: LocalStorage, tmp_path: Path) -> None:
    write_model(storage, "models/m", WEIGHTS, {})
    path = tmp_path / "models/m/weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match="has changed since it was saved"):
        read_model(storage, "models/m")


@pytest.mark.parametrize("note", [b"[]", b"{}", b'{"sha256": 5}', b"\x80\x04pickle", b"[" * 999])
def test_a_note_that_is_none_is_refused(note: bytes, storage: LocalStorage, tmp_path: Path) -> None:
    write_model(storage, "models/m", WEIGHTS, {})
    (tmp_path / "models/m/model.json").write_bytes(note)
    with pytest.raises(CheckpointError, match=rf"^{tmp_path}/models/m.*; restore its directory"):
        read_model(storage, "models/m")


@pytest.mark.parametrize("name", ["models/../../x", "/etc", "models/nothing"])
def test_a_model_elsewhere_or_nowhere_is_refused(name: str, storage: LocalStorage) -> None:
    with pytest.raises(StorageError):
        read_model(storage, name)


def test_a_published_model_is_the_same_model_in_another_place(storage: LocalStorage) -> None:
    write_model(storage, "models/best-1", WEIGHTS, {"n": 1})
    write_model(storage, "models/best-2", WEIGHTS, {"n": 2})
    publish(storage, "models/best-1", "models/best")
    publish(storage, "models/best-2", "models/best")
    assert read_model(storage, "models/best")[1]["n"] == 2
    assert storage.names("models") == ["best", "best-1", "best-2"]


def test_what_happens_to_a_published_copy_does_not_happen_to_the_model(
    storage: LocalStorage, tmp_path: Path
) -> None:
    write_model(storage, "models/best-1", WEIGHTS, {})
    publish(storage, "models/best-1", "models/best")
    for name in ("weights.safetensors", "model.json"):
        with (tmp_path / "models/best" / name).open("ab") as file:
            file.write(b"x")
    assert read_model(storage, "models/best-1")[0].keys() == WEIGHTS.keys()
    publish(storage, "models/best-1", "models/best")
    assert read_model(storage, "models/best")[0].keys() == WEIGHTS.keys()


def test_a_model_whose_directory_is_gone_comes_back_from_its_published_copy(
    storage: LocalStorage,
) -> None:
    write_model(storage, "models/best-1", WEIGHTS, {"model": "models/best-1"})
    publish(storage, "models/best-1", "models/best")
    storage.remove("models/best-1")
    assert mend(storage, "models/best-1", "models/best")
    assert read_model(storage, "models/best-1")[0].keys() == WEIGHTS.keys()
    # The copy is of another model.
    assert not mend(storage, "models/best-2", "models/best")
    assert not storage.exists("models/best-2")


def test_publishing_the_same_again_writes_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(storage, "models/best-1", WEIGHTS, {})
    publish(storage, "models/best-1", "models/best")
    points: list[str] = []
    monkeypatch.setattr(checkpoint, "passed", points.append)
    publish(storage, "models/best-1", "models/best")
    assert points == []


def test_a_published_model_survives_the_one_it_came_from(storage: LocalStorage) -> None:
    write_model(storage, "models/best-1", WEIGHTS, {})
    publish(storage, "models/best-1", "models/best")
    storage.remove("models/best-1")
    assert read_model(storage, "models/best")[0].keys() == WEIGHTS.keys()


def test_a_model_can_be_saved_anywhere_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    config = {"kind": "mlp", "inputs": 2, "widths": [3], "outputs": 2, "activation": "relu"}
    model = Model({**config, "layer_norm": False, "dropout": 0.0}, loss="cross_entropy")
    model.save_model(tmp_path / "deep" / "mine")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["mine"]
    other = Model({**config, "layer_norm": False, "dropout": 0.0}, loss="cross_entropy")
    other.load_model(tmp_path / "deep" / "mine")
    assert checkpoint.digest_of({"m": other.state_dict()}) == checkpoint.digest_of(
        {"m": model.state_dict()}
    )


def test_a_note_is_json_that_people_can_read(storage: LocalStorage, tmp_path: Path) -> None:
    write_model(storage, "models/m", WEIGHTS, {"architecture": "mlp", "score": 0.25})
    note = json.loads((tmp_path / "models/m/model.json").read_text())
    assert {"architecture": "mlp", "score": 0.25}.items() <= note.items()
    assert len((tmp_path / "models/m/model.json").read_bytes()) < models.MAX_NOTE
