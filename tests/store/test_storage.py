"""The disk behind safe names: whole files or none, growing files that hold back what does not fit."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import StorageError
from ludus.store.files import Append
from ludus.store.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


@pytest.mark.covers("000-D14")
@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/x",
        "a/../b",
        ".",
        "..",
        ".x",
        "-x",
        "a\0b",
        "a\nb",
        "",
        "a//b",
        "a/",
        "x" * 300,
    ],
)
def test_a_name_that_could_lead_out_of_the_root_is_refused(
    name: str, storage: LocalStorage
) -> None:
    for use in (storage.read, storage.make, storage.exists, storage.remove, storage.append):
        with pytest.raises(StorageError, match="is not a safe file name"):
            use(name)
    with pytest.raises(StorageError, match="is not a safe file name"):
        storage.write(name, b"x")
    assert os.listdir(storage.root) == []


def test_a_link_is_not_followed_wherever_it_stands(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").symlink_to(tmp_path / "real" / "file")
    for name in ("link/file", "file", "link"):
        with pytest.raises(StorageError, match="is a link"):
            storage.read(name)
        with pytest.raises(StorageError, match="is a link"):
            storage.write(name, b"yours")
    assert (tmp_path / "real" / "file").read_bytes() == b"mine"


def test_a_pipe_is_refused_and_not_waited_for(storage: LocalStorage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for use in (storage.read, storage.sha256):
        with pytest.raises(StorageError, match="is not a plain file"):
            use("pipe.jsonl")
    with pytest.raises(StorageError, match="is not a plain file"):
        storage.append("pipe.jsonl")


def test_what_is_missing_or_a_directory_is_a_typed_error(storage: LocalStorage) -> None:
    storage.make("folder")
    for use in (storage.read, storage.sha256):
        for name in ("nothing", "folder"):
            with pytest.raises(StorageError):
                use(name)
    with pytest.raises(StorageError, match="No such file"):
        storage.size("nothing")
    storage.write("file", b"x")
    with pytest.raises(StorageError, match="Not a directory"):
        storage.names("file")
    assert storage.names("nothing") == []


def test_a_file_larger_than_its_limit_is_not_read(storage: LocalStorage) -> None:
    storage.write("file", b"12345")
    assert storage.read("file", limit=5) == b"12345"
    with pytest.raises(StorageError, match="larger than the 4 bytes"):
        storage.read("file", limit=4)


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(
    storage: LocalStorage,
) -> None:
    storage.write("file", b"a long first text")
    storage.write("file", b"short")
    assert storage.read("file") == b"short"
    assert storage.names("") == ["file"]


@pytest.mark.covers("002-D5")
def test_a_write_that_fails_keeps_the_old_file(storage: LocalStorage, tmp_path: Path) -> None:
    storage.write("file", b"old")
    # A directory in the place of the temporary file makes the write fail half way.
    (tmp_path / f"file.tmp-{os.getpid()}" / "x").mkdir(parents=True)
    with pytest.raises(StorageError, match="file cannot be written"):
        storage.write("file", b"new")
    assert storage.read("file") == b"old"


@pytest.mark.covers("000-S14")
def test_a_directory_appears_whole_or_not_at_all(storage: LocalStorage) -> None:
    seen: list[list[str]] = []

    def fill(folder: Path) -> None:
        (folder / "part").write_bytes(b"x")
        seen.append([name for name in storage.names("") if ".tmp-" not in name])

    points: list[str] = []
    storage.commit("thing", fill, step=points.append)
    assert seen == [[]]
    assert storage.names("thing") == ["part"]
    assert points == ["made", "filled", "renamed"]


@pytest.mark.covers("000-D14")
def test_what_stood_in_the_place_of_a_new_directory_is_kept_aside(storage: LocalStorage) -> None:
    for text in (b"one", b"two", b"three"):

        def fill(folder: Path, text: bytes = text) -> None:
            (folder / "part").write_bytes(text)

        storage.commit("thing", fill, step=lambda point: None)
    assert storage.names("") == ["thing", "thing.aside-0", "thing.aside-1"]
    assert storage.read("thing/part") == b"three"
    assert storage.read("thing.aside-0/part") == b"one"


def test_the_directories_above_one_are_made_with_it(storage: LocalStorage) -> None:
    assert storage.make("one/two/three").is_dir()
    storage.commit("four/five/six", fill_nothing, step=str)
    assert storage.names("four/five") == ["six"]


def fill_nothing(folder: Path) -> None: ...


@pytest.mark.parametrize(
    "write",
    [
        lambda storage: storage.make("checkpoints"),
        lambda storage: storage.make("models/agent"),
        lambda storage: storage.commit("checkpoints/1", fill_nothing, step=str),
        lambda storage: storage.commit("thing", fill_nothing, step=str),
        lambda storage: storage.write("run.json", b"x"),
        lambda storage: storage.append("metrics.jsonl"),
        lambda storage: storage.append("events/x"),
    ],
    ids=["make", "make two", "commit", "commit at the top", "write", "append", "append below"],
)
def test_a_root_that_goes_in_the_moment_of_a_write_is_not_made_again(
    write: Any, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    storage = LocalStorage(root)
    root.mkdir()
    removals = iter([lambda: shutil.rmtree(root)])
    # The first check finds everything well, and then the directory is removed.
    storage.check_owned = lambda: next(removals, lambda: None)()
    with pytest.raises(StorageError, match="No such file"):
        write(storage)
    assert not root.exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("ours")])
def test_a_directory_that_cannot_be_filled_leaves_no_trace(
    error: Exception, storage: LocalStorage
) -> None:
    def fill(folder: Path) -> None:
        (folder / "part").write_bytes(b"half")
        raise error

    with pytest.raises(StorageError if isinstance(error, OSError) else ValueError):
        storage.commit("thing", fill, step=lambda point: None)
    assert storage.names("") == []


def test_sweeping_removes_what_crashed_writers_left_and_nothing_else(
    storage: LocalStorage, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints" / "0000000001.tmp-77").mkdir(parents=True)
    (tmp_path / "checkpoints" / "0000000002.trash-77" / "deep").mkdir(parents=True)
    (tmp_path / "config.yaml.tmp-1").write_bytes(b"half")
    (tmp_path / "my.tmp-notes").write_bytes(b"mine")
    (tmp_path / "checkpoints" / "0000000003").mkdir()
    storage.sweep()
    assert storage.names("") == ["checkpoints", "my.tmp-notes"]
    assert storage.names("checkpoints") == ["0000000003"]


def test_sweeping_does_not_follow_a_link_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "0000000001.tmp-1").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / "run.json.tmp-1").symlink_to(tmp_path / "elsewhere")
    LocalStorage(tmp_path / "run").sweep()
    assert (tmp_path / "elsewhere" / "0000000001.tmp-1").exists()


def test_a_growing_file_can_be_cut_back_to_where_it_was(storage: LocalStorage) -> None:
    storage.append("metrics.jsonl").write(b"one\n")
    storage.append("events/x").write(b"\x01")
    offsets = storage.offsets()
    storage.append("metrics.jsonl").write(b"two\n")
    storage.append("events/x").write(b"\x02")
    storage.append("events/late").write(b"\x03")
    storage.append("events.jsonl").write(b"a journal\n")
    storage.close()
    storage.cut_back(offsets, keep=("events.jsonl",))
    assert storage.read("metrics.jsonl") == b"one\n"
    assert storage.read("events/x") == b"\x01"
    storage.append("events/late").write(b"\x04")
    assert storage.read("events/late") == b"\x04"
    assert storage.names("events") == ["late", "x"]
    assert storage.read("events.jsonl") == b"a journal\n"


def test_a_growing_file_that_the_checkpoint_did_not_know_is_put_aside_once_it_is_written(
    storage: LocalStorage,
) -> None:
    storage.write("late.csv", b"rows\n")
    storage.write("empty.jsonl", b"")
    storage.cut_back({"empty.jsonl": 0}, keep=())
    assert storage.names("") == ["late.csv"]
    storage.append("late.csv").write(b"new\n")
    assert storage.read("late.csv") == b"new\n"
    assert storage.read("late.csv.aside-0") == b"rows\n"


def test_a_growing_file_knows_the_hash_of_what_it_holds(storage: LocalStorage) -> None:
    storage.append("a.jsonl").write(b"one\n")
    storage.append("a.jsonl").write(b"two\n")
    whole = hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert storage.log_hashes() == {"a.jsonl": whole}
    storage.close()
    again = LocalStorage(storage.root)
    again.append("a.jsonl")
    assert again.log_hashes() == {"a.jsonl": whole}
    assert again.sha256("a.jsonl", length=4) == hashlib.sha256(b"one\n").hexdigest()


def test_a_file_shorter_than_the_checkpoint_saw_it_is_an_error_before_anything_is_cut(
    storage: LocalStorage,
) -> None:
    storage.write("a.jsonl", b"long enough\n")
    storage.write("b.jsonl", b"short\n")
    with pytest.raises(StorageError, match=r"b\.jsonl has 6 bytes, but the checkpoint saw 9"):
        storage.cut_back({"a.jsonl": 5, "b.jsonl": 9}, keep=())
    assert storage.read("a.jsonl") == b"long enough\n"


@pytest.mark.parametrize(
    "name", ["config.yaml", "checkpoints/x.jsonl", "models/x.csv", "notes.txt"]
)
def test_only_a_log_may_grow_and_be_cut(name: str, storage: LocalStorage) -> None:
    with pytest.raises(StorageError, match="cannot be a growing file"):
        storage.append(name)
    assert storage.names("") == []


@pytest.mark.parametrize("torn", [b"", b"tor", b"x" * 3_000_000])
def test_half_a_line_at_the_end_is_dropped_before_the_next_is_added(
    torn: bytes, storage: LocalStorage
) -> None:
    storage.write("events.jsonl", b"one\ntwo\n" + torn)
    storage.append("events.jsonl").write(b"three\n")
    assert storage.append("events.jsonl").offset == 14
    assert storage.read("events.jsonl") == b"one\ntwo\nthree\n"


def test_a_file_of_half_a_line_only_begins_anew(storage: LocalStorage) -> None:
    storage.write("events.jsonl", b"half")
    storage.append("events.jsonl").write(b"one\n")
    assert storage.read("events.jsonl") == b"one\n"


class NarrowAppend(Append):
    """A growing file whose disk takes only so many bytes; it is a real file all the same."""

    room = 0

    def flush(self) -> bool:
        real = os.write

        def write(descriptor: int, data: bytes) -> int:
            if self.room == 0:
                raise OSError(28, "No space left on device")
            written = real(descriptor, data[: self.room])
            self.room -= written
            return written

        os.write = write  # type: ignore[assignment]
        try:
            return super().flush()
        finally:
            os.write = real


def test_what_a_full_disk_refuses_is_held_back_and_written_in_order(tmp_path: Path) -> None:
    file = NarrowAppend(tmp_path / "log.jsonl")
    for room, line in ((0, b"one\n"), (3, b"two\n"), (0, b"three\n")):
        file.room = room
        file.write(line)
        # Never a part of a line, and the offset says what is in the file.
        assert (tmp_path / "log.jsonl").read_bytes() == b""
        assert file.offset == 0
    file.room = 1000
    assert file.flush()
    assert (tmp_path / "log.jsonl").read_bytes() == b"one\ntwo\nthree\n"
    assert file.offset == 14
    file.close()
