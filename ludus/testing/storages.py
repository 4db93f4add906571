"""Contract of a storage: atomic files, append-only files that can be truncated, no escape from the root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ludus.core.errors import StorageError
from ludus.store.storage import Storage

_BAD_NAMES = ("../x", "/etc/x", "a/../b", ".hidden", "-x", "a\0b", "a\nb", "", "a//b", "x" * 300)


def check_storage(make: Callable[[], Storage]) -> None:
    """Check what every storage promises; `make` opens the same empty location each time."""
    storage = make()
    for name in _BAD_NAMES:
        try:
            storage.write(name, b"no")
        except StorageError:
            continue
        raise AssertionError(f"the name {name!r} was accepted")
    storage.write("file", b"one")
    storage.write("file", b"two")
    assert storage.read("file") == b"two", "a second write does not replace the first"
    storage.write("made/on/the-way", b"three")
    assert storage.names("made/on") == ["the-way"], "a folder is not made where a file is written"
    storage.remove("made")
    assert storage.names("") == ["file"], "writing leaves other files behind"
    _check_commit(storage)
    _check_append(storage, make)


def _check_commit(storage: Storage) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").write_bytes(b"half")
        raise OSError(28, "no space left")

    try:
        storage.commit("whole/thing", fail, step=lambda point: None)
    except StorageError:
        assert storage.names("whole") == [], "a failed commit leaves something behind"
    else:
        raise AssertionError("a failed commit raised no error")
    storage.commit(
        "whole/thing", lambda folder: _put(folder / "part", b"all"), step=lambda point: None
    )
    assert storage.read("whole/thing/part") == b"all", "a commit does not keep what was written"
    storage.remove("whole/thing")
    assert storage.names("whole") == [], "removing leaves something behind"


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _check_append(storage: Storage, make: Callable[[], Storage]) -> None:
    storage.append("log.jsonl").write(b"one\n")
    offsets = storage.offsets()
    storage.append("log.jsonl").write(b"two\n")
    storage.append("late.jsonl").write(b"x\n")
    storage.close()
    again = make()
    again.cut_back(offsets, keep=())
    assert again.read("log.jsonl") == b"one\n", "cutting back does not restore the length"
    again.append("late.jsonl").write(b"y\n")
    again.append("log.jsonl").write(b"three\n")
    again.close()
    assert again.read("late.jsonl") == b"y\n", (
        "a log the checkpoint did not know does not start empty"
    )
    assert again.read("log.jsonl") == b"one\nthree\n", "appending does not go on at the end"
