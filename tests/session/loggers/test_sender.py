"""Every line of the log reaches a service once, in order, whatever fails and however many lines wait."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ludus.core.run import Run
from ludus.session.logger import Logger
from ludus.session.record import Record
from ludus.session.remote import sender
from ludus.session.remote.log_line import LogLine
from ludus.session.remote.logged_run import LoggedEnd, flattened
from ludus.session.remote.sender import Refused, Sender, Unreachable, without_secrets
from ludus.store.local import LocalStorage


class Shelf:
    """A service that keeps lines in memory, fails when asked to, and may fail after it has taken them."""

    label = "Shelf of the test"

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.ends: list[str] = []
        self.failures: list[Exception] = []
        self.fails_after_taking = False
        self.may_send = threading.Event()
        self.may_send.set()
        self.num_connected = 0

    def connect(self) -> int:
        self.num_connected += 1
        self._fail()
        return self.lines[-1].number if self.lines else 0

    def send(self, lines: Sequence[LogLine]) -> None:
        self.may_send.wait()
        if self.fails_after_taking:
            self.lines += lines
        self._fail()
        if not self.fails_after_taking:
            self.lines += lines

    def finish(self, end: LoggedEnd) -> None:
        self.ends.append(end.status)

    def notes(self) -> list[str]:
        return []

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


class SentLog:
    """A log in a folder whose lines are sent to a shelf."""

    def __init__(self, folder: Path, shelf: Shelf) -> None:
        self.storage = LocalStorage(folder)
        self.storage.make_root()
        self.logger = Logger({"backends": []})
        self.logger.open(self.storage)
        self.told: list[tuple[str, object]] = []
        self.sender = Sender(shelf, self.storage, counter_names=("opt_steps", "epoch"), wait=60.0)
        self.logger.attach(self.sender)
        self._run = Run()

    def start(self) -> None:
        self.sender.start(lambda event, **more: self.told.append((event, more["reason"])))

    def write(self, *steps: int) -> None:
        for step in steps:
            self._run.counters["opt_steps"] = step
            self.logger.log("loss", 1 / step)
            self.logger.text("note", f"step {step}")
            self.logger.write(self._run)

    def end(self) -> None:
        self.logger.close()
        self.storage.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SECONDS_BETWEEN_SENDS", 0.0)
    monkeypatch.setattr(sender, "SECONDS_BETWEEN_TRIES", 0.01)


def numbers(shelf: Shelf) -> list[int]:
    return [line.number for line in shelf.lines]


def test_what_an_earlier_process_wrote_is_sent_first(tmp_path: Path) -> None:
    shelf = Shelf()
    early = SentLog(tmp_path, Shelf())
    early.write(*range(1, 251))
    early.storage.close()
    log = SentLog(tmp_path, shelf)
    log.start()
    log.write(251, 252)
    log.end()
    assert numbers(shelf) == list(range(1, 253))
    assert [line.step for line in shelf.lines] == list(range(1, 253))
    assert [line.scalars["loss"] for line in shelf.lines] == [1 / step for step in range(1, 253)]
    assert {line.texts["note"] for line in shelf.lines} == {f"step {s}" for s in range(1, 253)}


def test_lines_that_memory_does_not_hold_are_read_back(tmp_path: Path) -> None:
    shelf = Shelf()
    log = SentLog(tmp_path, shelf)
    log.start()
    shelf.may_send.clear()
    log.write(*range(1, 701))
    shelf.may_send.set()
    log.write(701)
    log.end()
    assert numbers(shelf) == list(range(1, 702))


@pytest.mark.parametrize("fails_after_taking", [False, True])
def test_a_failed_send_is_asked_about_and_never_repeats_a_line(
    fails_after_taking: bool, tmp_path: Path
) -> None:
    shelf = Shelf()
    shelf.fails_after_taking = fails_after_taking
    log = SentLog(tmp_path, shelf)
    log.start()
    shelf.failures = [Unreachable("gone")]
    log.write(*range(1, 6))
    log.end()
    assert numbers(shelf) == [1, 2, 3, 4, 5]
    kinds = [event for event, _ in log.told]
    assert kinds == ["logger_unreachable", "logger_back"]
    assert "does not answer (gone); training goes on" in str(log.told[0][1])


def test_a_refusal_at_the_beginning_ends_the_run_and_a_later_one_only_the_sending(
    tmp_path: Path,
) -> None:
    shelf = Shelf()
    shelf.failures = [Refused("no such project")]
    with pytest.raises(Refused, match="no such project"):
        SentLog(tmp_path / "one", shelf).start()
    log = SentLog(tmp_path / "two", shelf)
    log.start()
    shelf.failures = [ValueError("odd")]
    log.write(1, 2)
    log.end()
    assert log.told == [
        (
            "logger_refused",
            "Shelf of the test failed: ValueError: odd; nothing more is sent; the log is complete in"
            " metrics.jsonl",
        )
    ]


def test_a_run_that_another_process_has_taken_is_not_ended_at_the_service(tmp_path: Path) -> None:
    shelf = Shelf()
    log = SentLog(tmp_path, shelf)
    log.start()

    def is_taken() -> None:
        raise Refused("taken")

    log.storage.check_owned = is_taken
    log.sender.close()
    assert shelf.ends == []


def test_a_late_record_keeps_the_axis_of_the_run(tmp_path: Path) -> None:
    shelf = Shelf()
    log = SentLog(tmp_path, shelf)
    log.start()
    log.write(4)
    log.sender.write(Record({"epoch": 9}, {"late": 1.0}, axis="opt_steps"))
    log.end()
    assert [(line.step, dict(line.scalars)) for line in shelf.lines][1:] == [(0, {"late": 1.0})]


def test_secrets_of_the_environment_are_cut_out_of_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary-1")
    monkeypatch.setenv("MY_PASSWORD", "canary-2")
    assert without_secrets("a canary-1 and canary-2\nmore") == "a *** and ***"
    assert len(without_secrets("x" * 1000)) == 300


def test_a_config_is_flattened_to_its_leaves() -> None:
    data = {"a": {"b": 1, "c": [1, None]}, "d": [{"e": True}, {"e": None}], "f": {}, "g": []}
    assert flattened(data) == {
        "a.b": 1, "a.c": "[1, null]", "d.0.e": True, "d.1.e": "null", "f": "{}", "g": "[]"
    }  # fmt: skip
