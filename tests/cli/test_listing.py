"""What a command prints, whatever stands in the files and names it tells of."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import ludus
from ludus.show.terminal import clean, printable
from ludus.store.strict_json import one_line
from tests.command_line import Ludus, in_process, small_config, small_file

STEERING = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m\x08\x7f\u202e\rover"


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, which nobody may change."""
    root = tmp_path_factory.mktemp("finished")
    ludus.build_trainer(small_config()).fit(root=str(root))
    return root / "small"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run that may be changed."""
    shutil.copytree(finished, tmp_path / "runs" / "small")
    return tmp_path / "runs" / "small"


@pytest.mark.parametrize("event", ["failed", "interrupted"])
def test_a_run_that_has_not_ended_has_the_word_of_its_newest_checkpoint(
    call: Ludus, run: Path, event: str
) -> None:
    def row() -> tuple[str, str | None]:
        told = call("runs", "--json").json["runs"][0]
        return told["status"], told["exact"]

    assert row() == ("finished", "expected")
    assert " expected " in call("runs").out
    change_ending(run, event=event)
    assert row() == (event, "expected")
    change_ending(run, event=event, exact="no")
    assert row() == (event, "no")
    assert " no " in call("runs").out
    (run / "events.jsonl").write_text("")
    assert row() == ("killed", "expected")


def strict(text: str) -> Any:
    """Read JSON as a program other than Python would."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def is_safe(text: str) -> bool:
    return all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf") for char in text)


def change_note(run: Path, **changes: Any) -> None:
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | changes))


def change_ending(run: Path, **changes: Any) -> None:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    lines[-1] |= changes
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "created",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01", "9999-12-31T23:59:59"],
)
def test_a_run_with_an_impossible_date_costs_its_own_row_alone(
    call: Ludus, run: Path, created: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "runs" / "good")
    change_note(run, created=created)
    told = call("runs")
    assert told.code == 0
    assert any("good" in line and "finished" in line for line in told.out.splitlines())
    rows = {row["name"]: row for row in strict(call("runs", "--json").out)["runs"]}
    assert rows["good"]["status"] == "finished"
    assert rows["small"]["status"] in ("damaged", "finished")


def test_runs_are_listed_by_when_they_began_whatever_their_zone(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "runs" / "later")
    change_note(run, created="2026-11-15T12:00:00+09:00")
    change_note(tmp_path / "runs" / "later", created="2026-11-15T11:00:00+00:00")
    assert [row["name"] for row in call("runs", "--json").json["runs"]] == ["later", "small"]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf"), 10**400, -1e308])
def test_a_score_that_is_no_number_is_listed_and_strict_json(
    call: Ludus, run: Path, score: float
) -> None:
    best = {"metric": "validation/epoch_loss", "score": score, "model": "models/best-1"}
    change_ending(run, best=best)
    assert "small" in call("runs").out
    (row,) = strict(call("runs", "--json").out)["runs"]
    assert row["best_score"] == (score if isinstance(score, int) else row["best_score"])
    assert row["best_score"] is not None
    assert call("report", str(run)).code == 0


def test_one_line_of_json_has_no_number_that_json_lacks_and_nothing_that_steers() -> None:
    text = one_line({"a": [float("nan"), (float("inf"), {"b": -float("inf")})], STEERING: STEERING})
    assert strict(text) == {"a": ["nan", ["inf", {"b": "-inf"}]], STEERING: STEERING}
    assert is_safe(text)
    assert text.isascii()


def test_what_steers_a_terminal_is_taken_out_and_the_words_stay() -> None:
    assert printable(f"  a\tb\n  {STEERING}") == "  a     b\n  red31mover"
    assert clean(f"  a\tb\n  {STEERING}") == "a b red31m over"
    assert printable("half \udcff é", "ascii") == "half ? ?"


@pytest.mark.parametrize(
    "words",
    [
        ["runs"], ["report"], ["eval"], ["resume"], ["explain"], ["plan"], ["train"],
        ["migrate"], ["explain-key"], ["no-such-run"], ["no-such-plugin"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_no_command_lets_a_name_or_a_file_steer_the_terminal(
    call: Ludus, run: Path, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / f"root {STEERING}"
    hostile = root / f"run {STEERING}"
    root.mkdir()
    shutil.move(run, hostile)
    change_note(hostile, kind=STEERING, name=STEERING)
    best = {"metric": STEERING, "score": 1.0, "model": "models/best-1"}
    change_ending(hostile, best=best, reason=STEERING, inexact_because=[STEERING])
    quoted = json.dumps(STEERING)
    path = small_file(tmp_path / f"{STEERING}.yaml")
    text = Path(path).read_text().replace("name: small", f"name: {quoted}")
    Path(path).write_text(text)
    bad = tmp_path / f"bad {STEERING}.yaml"
    bad.write_text(text + f"{quoted}: {quoted}\n")
    calls: dict[str, list[list[str]]] = {
        "runs": [["runs", "--root", str(root)], ["runs", "--root", STEERING]],
        "report": [["report", str(hostile)]],
        "eval": [["eval", str(hostile)]],
        "resume": [["resume", str(hostile), f"seed={STEERING}"], ["resume", str(hostile)]],
        "explain": [["explain", path], ["explain", str(bad)]],
        "explain-key": [["explain", path, STEERING], ["explain", path, f"{STEERING}=1"]],
        "plan": [["plan", path], ["plan", str(bad)], ["plan", path, f"name={quoted}"]],
        "train": [["train", path], ["train", str(bad)], ["train", path, "--root", STEERING]],
        "migrate": [["migrate", path], ["migrate", str(bad)]],
        "no-such-run": [["report", STEERING], ["eval", STEERING], ["export", STEERING]],
        "no-such-plugin": [["plan", path, "--plugin", STEERING]],
    }
    for one in calls[words[0]]:
        told = call(*one)
        assert is_safe(told.out), one
        assert is_safe(told.err), one
        assert told.out or told.err


def test_a_run_with_a_steering_name_trains_and_shows_it_safely(call: Ludus, tmp_path: Path) -> None:
    path = small_file(tmp_path / "small.yaml", max_epochs=1)
    told = call("train", path, "settings.display=plain", "--root", f"r {STEERING}")
    assert told.code == 0
    assert is_safe(told.out)
    assert is_safe(told.err)
    (hint,) = [line for line in told.out.splitlines() if line.startswith("next: ")]
    assert hint == "next: ludus report 'r red31mover/small'"


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda tree: (
        st.lists(tree, max_size=3) | st.dictionaries(st.text(max_size=6), tree, max_size=3)
    ),
    max_leaves=6,
)
VALUES = TREES | st.sampled_from([10**400, -(10**30), STEERING, "9999-12-31T23:59:59-14:00"])


def lines_of(*keys: str) -> st.SearchStrategy[bytes]:
    """Return a strategy of .jsonl files: records with these keys or others, and damaged lines."""
    keyed = st.dictionaries(st.sampled_from(keys), VALUES, max_size=len(keys))
    line = (keyed | TREES).map(lambda tree: json.dumps(tree).encode()) | st.binary(max_size=12)
    return st.lists(line, max_size=5).map(lambda lines: b"\n".join(lines) + b"\n" * bool(lines))


NOTES = st.fixed_dictionaries(
    {"format": st.just(1) | VALUES},
    optional=dict.fromkeys(("kind", "name", "seed", "created", "git", "versions"), VALUES),
)
EVENT = st.fixed_dictionaries(
    {"event": st.sampled_from(["started", "resumed", "finished", "failed", "length_changed"])},
    optional=dict.fromkeys(("time", "pid", "counters", "best", "exact", "reason"), VALUES)
    | {
        "best": st.fixed_dictionaries({"metric": VALUES, "score": VALUES}) | VALUES,
        "counters": st.dictionaries(st.sampled_from(["epoch", "opt_steps"]), VALUES) | VALUES,
        "inexact_because": VALUES,
    },
)
EVENTS = st.lists(EVENT, max_size=4).map(
    lambda events: b"".join(json.dumps(event).encode() + b"\n" for event in events)
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    note=NOTES.map(lambda note: json.dumps(note).encode()) | st.binary(max_size=20),
    events=EVENTS | lines_of("event", "time", "best", "counters"),
    metrics=lines_of("epoch", "opt_steps", "train/loss", "text", "histogram", STEERING),
)
def test_whatever_the_files_of_a_run_hold_it_is_listed_and_reported(
    call: Ludus, run: Path, note: bytes, events: bytes, metrics: bytes
) -> None:
    (run / "run.json").write_bytes(note)
    (run / "events.jsonl").write_bytes(events)
    (run / "metrics.jsonl").write_bytes(metrics)
    (run / "timing.jsonl").write_bytes(metrics)
    told = call("runs")
    assert told.code == 0
    assert "small" in told.out
    assert is_safe(told.out)
    (row,) = strict(call("runs", "--json").out)["runs"]
    assert row["name"] == "small"
    report = call("report", str(run))
    assert report.code in (0, 1)
    assert is_safe(report.out + report.err)
    if report.code:
        assert "run.json" in report.refusal()


@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"], ["report", "runs/small"], ["new"]])
@pytest.mark.usefixtures("run")
def test_looking_at_runs_brings_no_torch_in(tmp_path: Path, words: list[str]) -> None:
    words = ["new", "supervised"] if words == ["new"] else words
    watch = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))"
    code = f"{watch}; sys.argv = {['ludus', *words]!r}; from ludus.cli.commands import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == "False\n"
