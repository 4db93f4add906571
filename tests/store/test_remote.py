"""A run in an object store: killed at any point it ends as one on the local disk does, to the byte."""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import ludus
from ludus.cli.exporting import export_run
from ludus.cli.listing import summary
from ludus.cli.tasks import play_run
from ludus.core.errors import ConfigError, RunError, RunTaken, StorageError
from ludus.show.report.page import write_report
from ludus.store import checkpoint
from ludus.store.cloud import lease
from ludus.store.cloud.remote import RemoteStorage
from ludus.store.cloud.spool import make_folder
from ludus.store.journal import Journal
from ludus.store.places import below, open_storage, parted, runs_in
from ludus.testing.differences import Ending, ending_of
from ludus.testing.trainers import check_kill_anywhere
from ludus.testing.victim import RUN
from tests.faults.small_run import small_config, train
from tests.faults.warm import WarmProcess
from tests.object_store import BUCKET, Server, server

Told = Callable[[dict[str, str], str], str]
OPEN = ("info", "find", "cat_file", "get_file", "pipe_file", "put_file", "cp_file", "rm_file")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    """A place of one test's own in the memory of this process."""
    yield f"memory://{tmp_path.name}/runs"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Ending:
    """How the small run ends on the local disk."""
    root = tmp_path_factory.mktemp("unbroken")
    train(root, "run")
    return ending_of(root / "run")


@pytest.mark.covers("000-S14")
def test_a_run_in_memory_ends_as_one_on_the_disk_wherever_it_is_killed(
    root: str, unbroken: Ending
) -> None:
    check_kill_anywhere(lambda: ludus.Trainer(small_config()), root, max_kills=3)
    assert ending_of(f"{root}/unbroken").metrics == unbroken.metrics
    assert ending_of(f"{root}/unbroken").models == unbroken.models
    assert {place.rpartition("/")[2] for place in runs_in(root)} >= {"unbroken", "killed-1"}


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    server()
    return f"s3://{BUCKET}/{tmp_path.name}/runs"


@pytest.fixture
def victim(warm: WarmProcess, tmp_path: Path) -> Callable[..., int]:
    def victim(config: Path, root: str, *words: str) -> int:
        variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        variables["TMPDIR"] = str(tmp_path)
        code, printed = warm.run(
            "be_victim", words=[str(config), root, *words], variables=variables
        )
        assert code in (0, -signal.SIGKILL), printed
        return code

    return victim


KILLS = (
    # Before there is anything to go back to, and with one checkpoint that is whole.
    "--at-point=put manifest.json",
    "--at-point=put state.json:2",
    "--at-boundary=5",
    "--at-point=put manifest.json:2",
    "--at-point=segments",
    "--at-point=model put model.json",
    "--at-point=collecting",
)


def test_a_run_in_a_bucket_killed_by_sigkill_ends_as_one_on_the_disk(
    bucket: str, victim: Callable[..., int], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(small_config().to_yaml())
    assert victim(config, str(tmp_path)) == 0
    for word in KILLS:
        assert victim(config, bucket, word) == -signal.SIGKILL, word
        # What it was about to put is still there, until the next process begins.
        assert len([*tmp_path.glob("ludus-spool-*")]) in (1, 2), word
        # Another process may come at once: the lease of a dead process of this machine has ended.
    assert victim(config, bucket) == 0
    assert not [*tmp_path.glob("ludus-spool-*")]
    place = f"{bucket}/{RUN}"
    assert ending_of(place) == ending_of(tmp_path / RUN)
    assert (
        open_storage(place).read("metrics.jsonl") == (tmp_path / RUN / "metrics.jsonl").read_bytes()
    )
    numbers = checkpoint.numbers(open_storage(place))
    for number in numbers:
        checkpoint.read(open_storage(place), number)
    assert not open_storage(place).is_locked()


@pytest.mark.covers("000-S14")
def test_a_run_that_is_elsewhere_is_listed_and_reported(root: str, tmp_path: Path) -> None:
    train(root, "run")  # type: ignore[arg-type]
    with pytest.raises(RunError, match="is not a directory of this machine; give --out"):
        write_report([f"{root}/run"])
    page = write_report([f"{root}/run"], tmp_path / "report.html").read_text()
    assert f"{root}/run/models/best" in page
    assert summary(open_storage(f"{root}/run"))["status"] == "finished"
    with pytest.raises(RunError, match=f"is not a run directory.*Did you mean '{root}/run'"):
        write_report([f"{root}/rum"])


def test_a_film_or_a_policy_of_a_run_that_is_elsewhere_needs_a_place(root: str) -> None:
    train(root, "run")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a directory of this machine; give --out"):
        play_run(f"{root}/run", None, episode=0, fps=10.0)
    with pytest.raises(ConfigError, match="is not a directory of this machine; give --out"):
        export_run(f"{root}/run", None)


@pytest.mark.parametrize("kind", ["spool", "logs"])
def test_local_files_that_a_killed_process_left_are_deleted_by_the_next(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = (f"{kind}-{ended.pid}-abc", f"{kind}-{os.getpid()}-abc", f"{kind}-mine")
    names = tuple(f"ludus-{name}" for name in names)
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").touch()
    made = make_folder()
    assert made.name.startswith(f"ludus-spool-{os.getpid()}-")
    # Those of a process that lives, and what only looks like them, stay.
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([made.name, *names[1:]])


def flaky(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Cut the connection for these calls."""

    def lost(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("Connection refused")

    for name in names:
        monkeypatch.setattr(type(fsspec.filesystem("memory")), name, lost)


def test_a_connection_lost_for_a_while_stops_the_saving_and_loses_nothing(
    root: str, unbroken: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(trainer: ludus.Trainer) -> None:
        # Nothing may be under way when the line is cut or comes back.
        while any(thread.name == "ludus-saver" for thread in threading.enumerate()):
            time.sleep(0.01)
        if trainer.epoch + 1 == 1:
            flaky(monkeypatch, *OPEN)
        if trainer.epoch + 1 == 2:
            monkeypatch.undo()

    train(root, "run", each_epoch=cut)  # type: ignore[arg-type]
    assert ending_of(f"{root}/run") == unbroken
    told = [json.loads(line) for line in open_storage(f"{root}/run").lines("events.jsonl")]
    failed = [event["reason"] for event in told if event["event"] == "checkpoint_failed"]
    assert failed
    assert all("the connection failed (Connection refused); check" in reason for reason in failed)


def test_a_connection_lost_for_good_is_a_sentence_and_the_resume_is_exact(
    root: str, unbroken: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(trainer: ludus.Trainer) -> None:
        if trainer.epoch + 1 == 2:
            flaky(monkeypatch, *OPEN)

    with pytest.raises(StorageError, match="the connection failed"):
        train(root, "run", each_epoch=cut)  # type: ignore[arg-type]
    monkeypatch.undo()
    train(root, "run")  # type: ignore[arg-type]
    assert ending_of(f"{root}/run") == unbroken


# What can be known before work starts


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("s4://bucket/runs", "'s4://' in s4://bucket/runs/run is not a storage that ludus knows"),
        ("http://host/runs", "is not a storage that ludus knows; use a directory"),
    ],
)
def test_a_place_of_no_known_kind_is_refused(place: str, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        train(place, "run")  # type: ignore[arg-type]


def test_a_bucket_that_is_not_there_is_told_before_work_starts() -> None:
    server()
    with pytest.raises(StorageError, match="there is no bucket 'nobody-made-it'; make it"):
        train("s3://nobody-made-it/runs", "run")  # type: ignore[arg-type]


@pytest.fixture
def told(warm: WarmProcess, tmp_path: Path) -> Told:
    """Return a function that returns with what `ludus train` refuses, given these variables."""

    def told(environment: dict[str, str], root: str) -> str:
        (tmp_path / "config.yaml").write_text(small_config().to_yaml())
        # Nobody has to wait for a second attempt.
        environment = {**environment, "AWS_MAX_ATTEMPTS": "1"}
        words = ("train", "config.yaml", "--root", root)
        return warm.command(*words, cwd=tmp_path, environment=environment).refusal()

    return told


def test_no_credentials_are_told_before_work_starts(
    bucket: str, tmp_path: Path, told: Told
) -> None:
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    sentence = told(nobody, bucket)
    assert "access was refused" in sentence
    assert "check the credentials" in sentence


def test_wrong_credentials_are_told_before_work_starts(told: Told) -> None:
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    # It lets the first call pass, which makes the bucket, and then asks who calls.
    strict = Server(INITIAL_NO_AUTH_ACTION_COUNT="1")
    strict.make_bucket("guarded")
    sentence = told(strict.environment(), "s3://guarded/runs")
    strict.stop()
    assert "s3://guarded/runs" in sentence
    assert "access was refused" in sentence


def test_a_server_that_does_not_answer_is_told_before_work_starts(bucket: str, told: Told) -> None:
    sentence = told({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, bucket)
    assert "the connection failed" in sentence
    assert "AWS_ENDPOINT_URL" in sentence


@pytest.mark.parametrize(
    ("root", "name", "place"),
    [
        ("s3://bucket/runs", "one", "s3://bucket/runs/one"),
        ("s3://bucket/runs/", "one", "s3://bucket/runs/one"),
        ("s3://bucket", "one", "s3://bucket/one"),
        ("s3://", "bucket", "s3://bucket"),
        ("runs", "one", "runs/one"),
    ],
)
def test_a_place_is_parted_as_it_was_joined(root: str, name: str, place: str) -> None:
    assert below(root, name) == place
    assert parted(place) == (root.rstrip("/") if place.count("/") > 2 else root, name)
    assert below(*parted(place)) == place


# The parts


@pytest.fixture
def storage(root: str) -> RemoteStorage:
    return RemoteStorage(f"{root}/run")


def test_a_directory_without_its_seal_is_not_there_and_is_swept(storage: RemoteStorage) -> None:
    storage.write("checkpoints/0000000001/state.json", b"half")
    storage.write("models/best-0000000001/weights.safetensors", b"half")
    storage.write("models/mine/notes.txt", b"mine")
    assert storage.names("checkpoints") == []
    assert storage.names("models") == []
    storage.sweep()
    assert not storage.exists("checkpoints/0000000001")
    assert not storage.exists("models/best-0000000001")
    assert storage.read("models/mine/notes.txt") == b"mine"


def test_a_removal_that_is_cut_short_leaves_what_is_not_there(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("state.json", "tensors.safetensors", "manifest.json"):
        storage.write(f"checkpoints/0000000001/{file}", b"x")
    gone: list[str] = []

    def once(name: str) -> None:
        if gone:
            raise StorageError("cut")
        gone.append(name)
        fsspec.filesystem("memory").rm_file(storage._connection._key(name))

    monkeypatch.setattr(storage._connection, "delete", once)
    with pytest.raises(StorageError):
        storage.remove("checkpoints/0000000001")
    assert storage.names("checkpoints") == []


def test_a_journal_in_an_object_store_is_there_when_put_returns(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(storage, "jobs")
    journal.put("a", {"n": 1})
    assert Journal(RemoteStorage(storage.place), "jobs").get("a") == {"n": 1}
    flaky(monkeypatch, *OPEN)
    with pytest.raises(StorageError, match="the connection failed"):
        journal.put("b", {"n": 2})
    monkeypatch.undo()
    assert journal.get("b") is None
    assert Journal(RemoteStorage(storage.place), "jobs").keys() == ["a"]
    journal.put("c", {"n": 3})
    assert Journal(RemoteStorage(storage.place), "jobs").keys() == ["a", "c"]


def test_a_lease_keeps_others_out_until_it_ends(storage: RemoteStorage) -> None:
    with storage.lock():
        assert RemoteStorage(storage.place).is_locked()
        with pytest.raises(RunError, match=rf"is in use by process {os.getpid()} on"):
            with RemoteStorage(storage.place).lock():
                pass
    with RemoteStorage(storage.place).lock():
        pass
    assert not storage.is_locked()


def hold(storage: RemoteStorage, **changes: Any) -> None:
    about = {"owner": "x", "pid": 1, "host": "elsewhere", "since": 0.0, "renewed": time.time()}
    storage._connection.put("LOCK", json.dumps({**about, **changes}).encode())


def age(storage: RemoteStorage, seconds: float) -> None:
    """Let the store think that LOCK was put so long ago."""
    file = fsspec.filesystem("memory").store[storage._connection._key("LOCK")]
    file.modified -= datetime.timedelta(seconds=seconds)


def test_a_lease_of_another_machine_ends_when_it_is_not_renewed(storage: RemoteStorage) -> None:
    hold(storage)
    age(storage, lease.LEASE_SECONDS / 2)
    with pytest.raises(RunError, match=r"process 1 on elsewhere; .* wait 60 seconds"):
        with storage.lock():
            pass
    assert storage.is_locked()
    age(storage, lease.LEASE_SECONDS)
    assert not storage.is_locked()
    with storage.lock() as held:
        held.check()
    assert storage.names("") == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_clocks_of_machines_that_differ_neither_end_a_lease_nor_keep_it(
    storage: RemoteStorage, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(storage, renewed=time.time() + hours * 3600)
    with pytest.raises(RunError, match="in use by process 1 on elsewhere"):
        with storage.lock():
            pass
    age(storage, lease.LEASE_SECONDS + 1)
    own = time.time()
    monkeypatch.setattr(lease.time, "time", lambda: own - hours * 3600)
    with storage.lock() as held:
        held.check()


def test_a_machine_of_the_same_name_is_another_one(storage: RemoteStorage) -> None:
    hold(storage, host=socket.gethostname(), boot="another", pid=2**31 - 1)
    with pytest.raises(RunError, match="in use by process"):
        with storage.lock():
            pass


def test_a_lease_is_believed_where_nothing_may_be_put(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(storage)
    flaky(monkeypatch, "pipe_file")
    assert storage.is_locked()


def test_a_bucket_tells_how_old_a_lease_is(bucket: str) -> None:
    storage = RemoteStorage(f"{bucket}/held")
    hold(storage, renewed=0.0)
    assert 0 <= storage.lock()._age() < time.time() / 2
    assert storage.names("") == ["LOCK"]


def test_a_lease_is_renewed_while_its_holder_lives(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.2)
    with storage.lock():
        first = latest = json.loads(storage.read("LOCK"))["renewed"]
        for _ in range(100):
            if latest > first:
                break
            time.sleep(0.05)
            latest = json.loads(storage.read("LOCK"))["renewed"]
        assert latest > first


def test_a_run_whose_lease_was_taken_stops_at_its_next_save(root: str) -> None:
    def take(trainer: ludus.Trainer) -> None:
        if trainer.epoch + 1 == 2:
            hold(RemoteStorage(f"{root}/run"))

    with pytest.raises(RunTaken, match="it stops and writes nothing more"):
        train(root, "run", each_epoch=take)  # type: ignore[arg-type]


def test_what_another_process_puts_is_seen(bucket: str) -> None:
    one, two = RemoteStorage(f"{bucket}/run"), RemoteStorage(f"{bucket}/run")
    assert one.names("checkpoints") == []
    two.write("checkpoints/0000000001/manifest.json", b"{}")
    assert one.names("checkpoints") == ["0000000001"]
    assert one.exists("checkpoints/0000000001")
