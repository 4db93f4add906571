"""A resumed run is compared with what it had logged before the kill: it is proved, or says what differs."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.config.registry import register_trainer
from ludus.core import Every, Observer, Repeat, Run, Stateful
from ludus.core.runtime import Result
from ludus.session import witness
from ludus.session.digests import Digests
from ludus.session.logger import WriteLog
from ludus.show.report.page import write_report
from ludus.store import overlap
from ludus.store.local import LocalStorage
from ludus.testing.differences import ending_of
from ludus.testing.trainers import run_trainer
from tests.toy import ToyTrainer, toy_config

HIDDEN = ctypes.c_long(0)
"""State of a process that belongs to nobody: it begins at 0 in each, and no watcher knows of it."""
MATTERS = {"metric": 10**9, "weights": 10**9, "length": 10**9}
"""From which step on the hidden state decides what."""


@pytest.fixture(autouse=True)
def nothing_matters() -> Iterator[None]:
    yield
    MATTERS.update(dict.fromkeys(MATTERS, 10**9))


class Net:
    """A network that is a part, moved by the hidden state where that matters."""

    def __init__(self) -> None:
        self.module = torch.nn.Linear(3, 2)

    def step(self, hidden: int) -> None:
        with torch.no_grad():
            self.module.weight += 0.25 + hidden

    def state_dict(self) -> dict[str, Any]:
        return dict(self.module.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(dict(state))


@register_trainer("toy_witnessed")
class Witnessed(ToyTrainer):
    """Twenty steps, a line for each; a checkpoint every eight stages."""

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        torch.manual_seed(0)
        self.net = Net()
        self.write_log = WriteLog(self.logger, [Every(1, "opt_steps")])

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "net": self.net}

    def observers(self) -> Sequence[Observer]:
        return [self.write_log]

    def plan(self) -> Repeat:
        step = Repeat(
            name="step",
            times=self.config.num_rounds,
            until=self.ends,
            body=(self.stage("train_step"),),
        )
        return Repeat(name="train", times=1, body=(step,))

    def ends(self, run: Run) -> bool:
        return run.counters["opt_steps"] >= MATTERS["length"] and HIDDEN.value > 20

    def after_train_step(self) -> None:
        HIDDEN.value += 1
        steps = self.run.counters["opt_steps"]
        self.net.step(HIDDEN.value if steps >= MATTERS["weights"] else 0)
        hidden = HIDDEN.value if steps >= MATTERS["metric"] else 0
        self.run.record({"toy/first": 1.0, "toy/hidden": float(hidden)})


def make(**changes: Any) -> Witnessed:
    HIDDEN.value = 0
    config = toy_config("toy_witnessed", num_rounds=20)
    return Witnessed(config.replace(**{"settings.checkpoint.every_stages": 8, **changes}))


def go(root: Path, kill_at: int | None = None, name: str = "run", **changes: Any) -> Result | None:
    return run_trainer(lambda: make(**changes), root, name, kill_at=kill_at)


def finish(root: Path, **changes: Any) -> Result:
    result = go(root, **changes)
    assert result is not None
    return result


def events(root: Path, *kinds: str) -> list[dict[str, Any]]:
    lines = (root / "run" / "events.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [event for event in found if event["event"] in kinds]


def test_a_resume_that_passes_what_was_logged_before_and_agrees_is_proved(tmp_path: Path) -> None:
    go(tmp_path, name="whole")
    assert go(tmp_path, 13) is None
    num_lines = len((tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines())
    result = finish(tmp_path)
    assert (result.exact, result.inexact_because) == ("proved", ())
    (agreed,) = events(tmp_path, "resume_agreed", "resume_differs")
    assert (agreed["event"], 0 < agreed["lines"] <= 2 * num_lines) == ("resume_agreed", True)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["exact"] == "proved"
    assert ending_of(tmp_path / "run") == ending_of(tmp_path / "whole")
    for name in ("metrics.jsonl", "weights.jsonl"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "run" / name).read_bytes() == whole
        assert whole
    assert not (tmp_path / "run" / overlap.NAME).exists()


def test_a_run_on_which_nothing_overlapped_is_only_expected_to_be_exact(tmp_path: Path) -> None:
    every = {"settings.checkpoint.every_stages": 1}
    go(tmp_path, 13, **every)
    # As if the kill had come before the last line, and not behind it.
    log = tmp_path / "run" / "metrics.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert finish(tmp_path, **every).exact == "expected"
    assert events(tmp_path, "resume_agreed", "resume_differs") == []


def test_hidden_state_that_no_watcher_sees_is_found_and_named_by_the_first_metric(
    tmp_path: Path,
) -> None:
    MATTERS["metric"] = 1
    assert go(tmp_path, 13) is None
    result = finish(tmp_path)
    assert result.exact == "no"
    (reason,) = result.inexact_because
    (event,) = events(tmp_path, "resume_differs")
    before = event["at"]["opt_steps"]
    assert (event["metric"], event["before"], event["now"]) == ("toy/hidden", before, 1.0)
    where = f"wrote toy/hidden 1.0 at opt_steps {before} where it had written {before}.0"
    assert reason == (f"resumed at boundary 8, it {where}: something that decides it is not saved")
    assert event["reason"] == reason
    assert json.loads((tmp_path / "run" / "run.json").read_text())["exact"] == "no"
    page = write_report([tmp_path / "run"]).read_text()
    assert "Exact: no" in page
    assert where in page


def test_weights_that_differ_where_no_metric_does_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MATTERS["weights"] = 1
    monkeypatch.setattr("ludus.session.digests.EVERY", 1)
    go(tmp_path, 13)
    result = finish(tmp_path)
    assert result.exact == "no"
    (event,) = events(tmp_path, "resume_differs")
    assert event["weights"] == "net.module"
    assert event["before"] != event["now"]
    steps = event["at"]["opt_steps"]
    told = f"had weights of net.module at opt_steps {steps} that are not those it had before"
    assert told in result.inexact_because[0]


def test_a_run_that_ends_before_a_line_it_had_written_says_so(tmp_path: Path) -> None:
    go(tmp_path, 15)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    MATTERS["length"] = last["opt_steps"] - 1
    trainer = make()
    HIDDEN.value = 100
    result = run_trainer(lambda: trainer, tmp_path, "run")
    assert result is not None
    assert result.exact == "no"
    told = f"ended without the line of metrics.jsonl at opt_steps {last['opt_steps']}"
    assert told in result.inexact_because[0]


def test_a_line_at_another_step_is_told_by_both(tmp_path: Path) -> None:
    go(tmp_path, 13)
    log = tmp_path / "run" / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    last["opt_steps"] += 5
    log.write_bytes(b"".join([*lines[:-1], json.dumps(last).encode() + b"\n"]))
    (reason,) = finish(tmp_path).inexact_because
    assert f"at opt_steps {last['opt_steps'] - 5} where" in reason
    assert f"one at opt_steps {last['opt_steps']}" in reason


def test_a_second_kill_before_the_lines_are_passed_loses_no_comparison(tmp_path: Path) -> None:
    assert go(tmp_path, 15) is None
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    MATTERS["metric"] = last["opt_steps"]
    assert go(tmp_path, 10) is None
    now = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert now["opt_steps"] < last["opt_steps"]
    assert events(tmp_path, "resume_differs", "resume_agreed") == []
    assert go(tmp_path, 10) is None
    result = finish(tmp_path)
    assert result.exact == "no"
    (event,) = events(tmp_path, "resume_differs")
    assert (event["metric"], event["at"]) == ("toy/hidden", {"opt_steps": last["opt_steps"]})


def test_two_kills_and_no_difference_prove_the_run(tmp_path: Path) -> None:
    for kill in (15, 10, 14):
        assert go(tmp_path, kill) is None
    assert finish(tmp_path).exact == "proved"


@pytest.mark.parametrize("lost", ["all", "one"])
def test_digests_that_are_not_written_again_leave_the_run_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr("ludus.session.digests.EVERY", 1)
    go(tmp_path, 15)
    take = Digests.take

    def take_fewer(digests: Digests, run: Run) -> None:
        if lost == "one" and run.counters["opt_steps"] != 9:
            take(digests, run)

    monkeypatch.setattr(Digests, "take", take_fewer)
    assert finish(tmp_path).exact == "expected"
    (told,) = events(tmp_path, "overlap_lost", "resume_agreed")
    assert "digests of weights that were written before were not written again" in told["reason"]


def digest_line(boundary: int, **weights: str) -> bytes:
    return json.dumps({"boundary": boundary, "weights": weights}).encode() + b"\n"


def test_digests_at_other_boundaries_are_no_difference_and_what_was_kept_stays() -> None:
    now = overlap.Tail(40, digest_line(9, a="1") + digest_line(12, a="2"))
    kept = overlap.Tail(
        0, digest_line(4, a="0") + digest_line(10, a="5", b="6") + digest_line(20, a="7")
    )
    joined, differ = witness._merged(8, now, kept)
    assert differ is None
    found = [(json.loads(line)["boundary"]) for line in joined.lines()]
    assert (joined.offset, found) == (40, [9, 10, 12, 20])
    assert witness._merged(8, now, overlap.Tail(0, b"")) == (now, None)
    other = overlap.Tail(0, digest_line(10, a="5") + digest_line(12, a="3"))
    assert witness._merged(8, now, other)[1] == (digest_line(12, a="3"), digest_line(12, a="2"))


def test_what_was_proved_stays_so_though_later_kills_leave_nothing_to_compare(
    tmp_path: Path,
) -> None:
    every = {"settings.checkpoint.every_stages": 8}
    go(tmp_path, 13, **every)
    go(tmp_path, 17, **every)
    assert [event["event"] for event in events(tmp_path, "resume_agreed")] == ["resume_agreed"]
    log = tmp_path / "run" / "metrics.jsonl"
    size = json.loads((tmp_path / "run/checkpoints/0000000016/manifest.json").read_text())
    log.write_bytes(log.read_bytes()[: size["offsets"]["metrics.jsonl"]])
    assert finish(tmp_path, **every).exact == "proved"


def test_a_difference_stays_though_the_run_is_killed_before_it_is_saved(tmp_path: Path) -> None:
    MATTERS["metric"] = 1
    go(tmp_path, 13)
    assert go(tmp_path, 11) is None
    assert len(events(tmp_path, "resume_differs")) == 1
    MATTERS["metric"] = 10**9
    result = finish(tmp_path)
    assert result.exact == "no"
    assert "toy/hidden" in result.inexact_because[0]


def test_a_difference_that_a_kill_left_untold_is_told_by_the_next_resume(tmp_path: Path) -> None:
    go(tmp_path, 13)
    storage, log = LocalStorage(tmp_path / "run"), tmp_path / "run" / "metrics.jsonl"
    (number,) = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    manifest = json.loads((tmp_path / "run/checkpoints" / number / "manifest.json").read_text())
    offset = manifest["offsets"]["metrics.jsonl"]
    was = log.read_bytes()[offset:].replace(b'"toy/first": 1.0', b'"toy/first": 2.0')
    overlap.keep(storage, {overlap.METRICS: overlap.Tail(offset, was)})
    (reason,) = finish(tmp_path).inexact_because
    assert "wrote toy/first 1.0 at opt_steps" in reason
    assert "where it had written 2.0" in reason


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"format": 1}', b"\xff\xfe", "flip"], ids=str
)
def test_damage_of_what_was_kept_aside_is_told_and_costs_that_comparison_alone(
    tmp_path: Path, damage: bytes | str
) -> None:
    go(tmp_path, 15)
    go(tmp_path, 10)
    aside = tmp_path / "run" / overlap.NAME
    flipped = aside.read_bytes().replace(b"toy/first", b"toy/thirst", 1)
    aside.write_bytes(flipped if isinstance(damage, str) else damage)
    result = finish(tmp_path)
    assert (result.status, result.exact) == ("finished", "proved")
    (lost,) = events(tmp_path, "overlap_lost")
    assert "overlap.json is damaged" in lost["reason"]


@pytest.mark.parametrize(
    "tail",
    [{"offset": "0", "text": ""}, {"offset": -1, "text": ""}, {"offset": 1.5, "text": ""},
     {"offset": 0, "text": ["x"]}, {"offset": 0}, None, "text"],
    ids=str,
)  # fmt: skip
def test_what_was_kept_aside_is_not_believed_because_its_seal_is_right(
    tmp_path: Path, tail: object
) -> None:
    go(tmp_path, 15)
    logs = {overlap.METRICS: tail}
    told = {"format": 1, "logs": logs, "seal": overlap._seal(logs)}
    (tmp_path / "run" / overlap.NAME).write_text(json.dumps(told))
    assert finish(tmp_path).status == "finished"
    (lost,) = events(tmp_path, "overlap_lost")
    assert "overlap.json is damaged" in lost["reason"]


def test_half_a_line_and_noise_behind_it_are_not_compared(tmp_path: Path) -> None:
    go(tmp_path, 13)
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
        file.write(b'\0\0\0{"opt_steps": 99}\n{"opt_steps": 7, "toy/fi')
    assert finish(tmp_path).exact == "proved"


def test_a_run_that_was_made_longer_is_not_compared_with_what_it_was(tmp_path: Path) -> None:
    MATTERS["metric"] = 1
    go(tmp_path, 15)
    result = finish(tmp_path, num_rounds=22)
    assert len(result.inexact_because) == 1
    assert "its length (num_rounds) was changed" in result.inexact_because[0]
    assert events(tmp_path, "resume_differs") == []


def test_each_part_that_a_resume_forgets_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.session.digests.EVERY", 1)
    for part in ("work", "net", "random"):
        root = tmp_path / part
        go(root, 13)
        result = run_trainer(make, root, "run", leave_out=part)
        assert result is not None
        assert result.exact == "no", part
        assert events(root, "resume_differs"), part


def test_a_run_in_an_object_store_is_compared_as_one_on_a_disk() -> None:
    pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    root = "memory://witness/runs"
    try:
        MATTERS["metric"] = 1
        run_trainer(make, root, "run", kill_at=13)
        result = run_trainer(make, root, "run")
        assert result is not None
        assert result.exact == "no"
        MATTERS["metric"] = 10**9
        run_trainer(make, root, "other", kill_at=13)
        result = run_trainer(make, root, "other")
        assert result is not None
        assert result.exact == "proved"
    finally:
        MemoryFileSystem.store.clear()


def test_only_so_much_is_kept_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path, 15)
    monkeypatch.setattr(overlap, "MAX_BYTES", 100)
    go(tmp_path, 10)
    kept = overlap.kept(LocalStorage(tmp_path / "run"), [overlap.METRICS])[overlap.METRICS]
    assert 0 < len(kept.text) <= 100
    assert kept.text.endswith(b"\n")
    assert finish(tmp_path).exact == "proved"
