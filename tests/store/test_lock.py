"""One process per run directory, by a lock that dies with its holder."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from ludus.core.errors import RunError
from ludus.store.lock import RunLock, is_locked


def in_child(work: object) -> int:
    """Return the exit code of a forked child that does some work: 0, or 9 for a RunError."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        except RunError:
            code = 9
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def take(directory: Path) -> None:
    with RunLock(directory):
        pass


def test_the_lock_file_says_who_holds_it(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        about = json.loads((tmp_path / "LOCK").read_text())
    assert about["pid"] == os.getpid()
    assert about["host"] == socket.gethostname()


def test_a_second_taker_in_this_process_is_refused_even_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "run")
    with RunLock(tmp_path / "run"), pytest.raises(RunError, match="this very process"):
        take(tmp_path / "other")
    take(tmp_path / "run")


def test_another_process_is_refused_while_the_lock_is_held_and_let_in_after(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        assert in_child(lambda: take(tmp_path)) == 9
    assert in_child(lambda: take(tmp_path)) == 0


def test_asking_does_not_take_or_drop_the_lock(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with RunLock(tmp_path):
        assert is_locked(tmp_path)
        assert in_child(lambda: is_locked(tmp_path) or os._exit(5)) == 0
        assert in_child(lambda: take(tmp_path)) == 9
    assert not is_locked(tmp_path)


def test_a_child_that_ends_does_not_drop_its_parents_lock(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        assert in_child(lambda: None) == 0
        assert in_child(lambda: take(tmp_path)) == 9


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[" * 4000, b"[]", b'{"pid": 1e999, "host": "x"}', b"\xff" * 9000]
)
def test_a_holder_whose_note_cannot_be_read_is_another_process(note: bytes, tmp_path: Path) -> None:
    with RunLock(tmp_path):
        # In a child, since a lock is dropped when its process closes any descriptor of the file.
        assert in_child(lambda: (tmp_path / "LOCK").write_bytes(note)) == 0

        def refused() -> None:
            with pytest.raises(RunError, match="in use by another process;"):
                take(tmp_path)

        assert in_child(refused) == 0


def test_a_link_in_the_place_of_the_lock_empties_nobodys_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "LOCK").symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="LOCK is a link"):
        take(tmp_path / "run")
    assert not is_locked(tmp_path / "run")
    assert (tmp_path / "mine").read_text() == "precious"


def test_an_error_inside_lets_the_next_one_in(tmp_path: Path) -> None:
    with pytest.raises(ValueError), RunLock(tmp_path):
        raise ValueError
    take(tmp_path)
