"""Uploaded files: kept durably, each once for an idempotency key, and damage is noticed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ludus.core.errors import StorageError
from ludus.store.local import LocalStorage
from ludus.text.server.errors import ApiError
from ludus.text.server.files import FileStore, StoredFile


def opened(root: Path) -> FileStore:
    root.mkdir(exist_ok=True)
    return FileStore(LocalStorage(root))


def added(store: FileStore, data: bytes = b"x\n", *, key: str | None = None) -> StoredFile:
    return store.add(io.BytesIO(data), filename="a.jsonl", purpose="fine-tune", idempotency_key=key)


def test_a_file_is_there_after_a_restart(tmp_path: Path) -> None:
    file = added(opened(tmp_path), b"one\ntwo\n")
    store = opened(tmp_path)
    assert store.get(file.id) == file
    assert store.path(file.id).read_bytes() == b"one\ntwo\n"
    assert file.bytes == 8


def test_the_newest_file_is_listed_first_after_a_restart_too(tmp_path: Path) -> None:
    store = opened(tmp_path)
    ids = [added(store, b"%d" % number).id for number in range(12)]
    assert [file.id for file in store.listed()] == ids[::-1]
    assert [file.id for file in opened(tmp_path).listed()] == ids[::-1]


def test_one_idempotency_key_makes_one_file_even_across_a_restart(tmp_path: Path) -> None:
    first = added(opened(tmp_path), key="k")
    store = opened(tmp_path)
    assert added(store, key="k") == first
    assert added(store, key="another").id != first.id
    assert len(store.listed()) == 2


def test_an_idempotency_key_with_other_contents_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    added(store, b"x", key="k")
    with pytest.raises(ApiError, match="used before with another request") as caught:
        added(store, b"y", key="k")
    assert caught.value.status == 409


def test_a_late_repetition_does_not_bring_back_a_deleted_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    file = added(store, key="k")
    store.delete(file.id)
    for again in (store, opened(tmp_path)):
        assert added(again, key="k").id == file.id
        assert again.listed() == []
        with pytest.raises(ApiError, match="No such File object"):
            again.get(file.id)
    assert list(tmp_path.rglob("data")) == []


def test_a_deleted_file_leaves_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.delete(added(store).id)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_was_being_written_is_not_there(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(28, "No space left on device")

    store = opened(tmp_path)
    with pytest.raises(StorageError, match="No space left"):
        store.add(Broken(), filename="a", purpose="fine-tune")
    assert store.listed() == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    file = added(opened(tmp_path))
    (tmp_path / "files" / file.id / "file.json").write_text("{")
    with pytest.raises(StorageError, match=rf"files/{file.id}/file.json is damaged"):
        opened(tmp_path)
