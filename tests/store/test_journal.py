"""The journal: durable before the caller goes on, never cut back, an error where it cannot be written."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ludus.core.errors import RunTaken, StorageError
from ludus.store.journal import Journal
from ludus.store.local import LocalStorage

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.text(), VALUES, max_size=4)
FILE = "journals/jobs.jsonl"


@settings(max_examples=60, deadline=None)
@given(
    puts=st.lists(st.tuples(st.sampled_from(["a", "b", "ü\n", ""]), RECORDS), max_size=8),
    half=st.integers(min_value=0, max_value=10_000),
)
def test_after_a_kill_in_mid_line_every_record_that_was_put_is_there(
    puts: list[tuple[str, dict[str, Any]]], half: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage, expected = LocalStorage(folder), {}
        journal = Journal(storage, "jobs")
        for key, record in puts:
            journal.put(key, record)
            expected[key] = record
        path = Path(folder) / FILE
        whole = path.read_bytes() if puts else b""
        journal.put("torn", {"x": "y" * 50})
        line = path.read_bytes()[len(whole) :]
        # The write of the last line stopped at any byte.
        path.write_bytes(whole + line[: half % len(line)])
        again = Journal(LocalStorage(folder), "jobs")
        assert {key: again.get(key) for key in again.keys()} == expected  # noqa: SIM118
        assert again.keys() == list(dict.fromkeys(key for key, _ in puts))
        again.put("next", {"n": 1})
        assert Journal(LocalStorage(folder), "jobs").get("next") == {"n": 1}


def test_a_record_is_synced_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, seen = Journal(LocalStorage(tmp_path), "jobs"), []
    journal.put("first", {})
    real = os.fsync
    monkeypatch.setattr(
        "os.fsync", lambda fd: (seen.append((tmp_path / FILE).read_bytes()), real(fd))
    )
    journal.put("a", {"paid": True})
    assert any(b'"paid": true' in data for data in seen)


def test_a_full_disk_is_an_error_and_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    journal = Journal(storage, "jobs")
    journal.put("a", {"n": 1})
    before = (tmp_path / FILE).read_bytes()
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 10:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data)[: len(data) // 2])

    monkeypatch.setattr("os.write", full)
    with pytest.raises(StorageError, match=r"jobs.jsonl cannot be written: No space left"):
        journal.put("b", {"n": 2})
    monkeypatch.undo()
    assert (tmp_path / FILE).read_bytes() == before
    assert journal.get("b") is None
    # Nothing was held back in memory: what was refused did not happen.
    assert storage.flush_appends()
    assert (tmp_path / FILE).read_bytes() == before
    journal.put("b", {"n": 3})
    assert Journal(LocalStorage(tmp_path), "jobs").get("b") == {"n": 3}


def test_a_sync_that_fails_is_an_error_and_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(LocalStorage(tmp_path), "jobs")
    journal.put("first", {})
    before = (tmp_path / FILE).read_bytes()

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        journal.put("a", {})
    assert (tmp_path / FILE).read_bytes() == before


def test_no_resume_cuts_a_journal_back(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.append("metrics.jsonl").write(b"one\n")
    Journal(storage, "jobs").put("a", {"n": 1})
    offsets = storage.offsets()
    assert set(offsets) == {"metrics.jsonl"}
    Journal(storage, "jobs").put("b", {"n": 2})
    storage.close()
    again = LocalStorage(tmp_path)
    again.cut_back(offsets, keep=())
    assert Journal(again, "jobs").keys() == ["a", "b"]


def test_what_get_returns_is_a_copy(tmp_path: Path) -> None:
    journal = Journal(LocalStorage(tmp_path), "jobs")
    record = {"list": [1]}
    journal.put("a", record)
    record["list"].append(2)
    assert journal.get("a") == {"list": [1]}
    found = journal.get("a")
    assert found is not None
    found["list"].append(3)
    assert journal.get("a") == {"list": [1]}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"x": object()}, "as JSON"),
        ({"x": float("nan")}, "as JSON"),
        ({1: 2}, "something else"),
        ({"x": (1, 2)}, "something else"),
        ({"x": "y" * (1 << 20)}, "keep what is large"),
    ],
)
def test_what_would_not_come_back_is_refused(record: Any, words: str, tmp_path: Path) -> None:
    journal = Journal(LocalStorage(tmp_path), "jobs")
    with pytest.raises(StorageError, match=words):
        journal.put("a", record)
    assert journal.keys() == []


def test_a_damaged_line_is_told_not_left_out(tmp_path: Path) -> None:
    Journal(LocalStorage(tmp_path), "jobs").put("a", {"n": 1})
    (tmp_path / FILE).write_bytes(b"{}\n" + (tmp_path / FILE).read_bytes())
    with pytest.raises(StorageError, match=r"line 1 of journals/jobs\.jsonl is damaged"):
        Journal(LocalStorage(tmp_path), "jobs")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot name a journal"):
        Journal(LocalStorage(tmp_path), name)


def test_a_process_that_lost_its_run_writes_no_record(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    journal = Journal(storage, "jobs")

    def taken() -> None:
        raise RunTaken("another process writes there")

    storage.check_owned = taken
    with pytest.raises(RunTaken):
        journal.put("a", {})
    assert not (tmp_path / FILE).exists()


def test_reading_a_journal_in_mid_write_changes_nothing_and_leaves_out_the_half_line(
    tmp_path: Path,
) -> None:
    Journal(LocalStorage(tmp_path), "jobs").put("a", {"n": 1})
    path = tmp_path / FILE
    line = b'{"key": "b", "record": {"n": 2}}\n'
    with path.open("ab") as other:
        other.write(line[:10])
        other.flush()
        before = path.read_bytes()
        reader = Journal(LocalStorage(tmp_path), "jobs")
        assert (reader.keys(), reader.get("b")) == (["a"], None)
        assert path.read_bytes() == before
        other.write(line[10:])
    assert reader.get("b") == {"n": 2}


def test_reading_a_journal_that_is_not_there_makes_nothing(tmp_path: Path) -> None:
    journal = Journal(LocalStorage(tmp_path), "jobs")
    assert (journal.keys(), journal.get("a")) == ([], None)
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_process_is_known_before_the_first_of_ones_own(tmp_path: Path) -> None:
    journal = Journal(LocalStorage(tmp_path), "jobs")
    Journal(LocalStorage(tmp_path), "jobs").put("a", {"n": 1})
    journal.put("b", {"n": 2})
    assert journal.keys() == ["a", "b"]


def test_records_that_were_added_share_one_sync_and_are_durable_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(LocalStorage(tmp_path), "answers")
    journal.add("first", {})
    syncs = []
    real = os.fsync
    monkeypatch.setattr("os.fsync", lambda fd: (syncs.append(fd), real(fd)))
    for number in range(32):
        journal.add(str(number), {"n": number})
    # They are in the file at once, so that they survive the end of the process.
    assert Journal(LocalStorage(tmp_path), "answers").get("31") == {"n": 31}
    assert syncs == []
    journal.flush()
    assert len(syncs) == 1


def test_records_that_a_full_disk_held_back_are_an_error_when_they_should_be_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(LocalStorage(tmp_path), "answers")
    journal.add("a", {"n": 1})

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    journal.add("b", {"n": 2})
    with pytest.raises(StorageError, match="no space left"):
        journal.flush()
    monkeypatch.undo()
    journal.flush()
    assert Journal(LocalStorage(tmp_path), "answers").get("b") == {"n": 2}


def test_a_released_journal_holds_no_file_open_and_is_read_again_when_asked(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    journal = Journal(storage, "answers")
    journal.add("a", {"n": 1})
    journal.release()
    # What another process wrote in between is read too.
    Journal(LocalStorage(tmp_path), "answers").put("b", {"n": 2})
    assert journal.get("b") == {"n": 2}
    assert journal.keys() == ["a", "b"]
    before = len(os.listdir("/proc/self/fd"))
    journal.put("c", {})
    assert len(os.listdir("/proc/self/fd")) == before + 1
    journal.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_log_may_be_released_while_a_checkpoint_makes_all_durable(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    first, second = (storage.append(f"journals/{name}.jsonl") for name in "ab")
    second.write(b"{}\n")
    sync = first.sync

    def sync_and_release() -> None:
        sync()
        storage.release("journals/b.jsonl")

    first.sync = sync_and_release  # type: ignore[method-assign]
    storage.sync_appends()
    assert (tmp_path / "journals" / "b.jsonl").read_bytes() == b"{}\n"
    assert storage.append("journals/b.jsonl") is not second


def test_a_thread_may_make_records_durable_while_another_adds_some(tmp_path: Path) -> None:
    journal = Journal(LocalStorage(tmp_path), "answers")
    journal.add("first", {})
    ended, failed = threading.Event(), []

    def flush() -> None:
        while not ended.is_set():
            try:
                journal.flush()
            except StorageError as error:
                failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for number in range(1500):
            journal.add(str(number), {"n": number})
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failed
    assert len((tmp_path / "journals/answers.jsonl").read_bytes().splitlines()) == 1501
    assert Journal(LocalStorage(tmp_path), "answers").keys() == journal.keys()


def test_a_record_that_is_given_as_json_comes_back_and_must_be_a_mapping(tmp_path: Path) -> None:
    journal = Journal(LocalStorage(tmp_path), "answers")
    journal.add('a "b"', '{"n":[1,"\u00fc"]}')
    assert Journal(LocalStorage(tmp_path), "answers").get('a "b"') == {"n": [1, "\u00fc"]}
    for text in ("[]", "", '{"a":\n1}'):
        with pytest.raises(StorageError, match="it is no mapping"):
            journal.add("b", text)
    with pytest.raises(StorageError, match="keep what is large"):
        journal.add("b", '{"x":"' + "y" * (1 << 20) + '"}')
    assert journal.keys() == ['a "b"']
