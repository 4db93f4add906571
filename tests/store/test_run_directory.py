"""A run directory: who may begin a run there, and what its files may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import LudusError, RunError
from ludus.store import directory
from ludus.store.local import LocalStorage
from tests.faults.small_run import ending, small_config, train


def begin(root: Path) -> Any:
    return ludus.Trainer(small_config(max_epochs=1)).fit(root=str(root), name="run")


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(RunError, match="holds a run already; go on with it"):
        begin(tmp_path)


def test_a_run_is_not_begun_among_other_peoples_files(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match=r"is not a run, yet holds thesis\.tex"):
        begin(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "left", [[], ["LOCK"], ["LOCK", "config.yaml.tmp-7"], ["LOCK", "config.yaml", "run.json.tmp-7"]]
)
def test_a_run_killed_while_it_was_made_can_be_begun_again(left: list[str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in left:
        (tmp_path / "run" / name).write_bytes(b"ha")
    assert begin(tmp_path).status == "finished"
    assert list((tmp_path / "run").glob("*.tmp-*")) == []


def test_a_finished_run_that_is_resumed_stays_as_it_was(tmp_path: Path) -> None:
    train(tmp_path, "run", max_epochs=1)
    before = ending(tmp_path / "run")
    assert train(tmp_path, "run", max_epochs=1).status == "finished"
    assert ending(tmp_path / "run") == before


def told(root: Path, *lines: object) -> LocalStorage:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (root / "events.jsonl").write_text(text)
    return LocalStorage(root)


def test_the_last_ending_counts_unless_the_run_was_taken_up_since(tmp_path: Path) -> None:
    ended = {"event": "finished", "exact": "proved", "counters": {"epoch": 3}, "best": None}
    assert directory.last_ending(told(tmp_path)) is None
    assert directory.last_ending(told(tmp_path, {"event": "started"}, ended)) == ended
    assert directory.last_ending(told(tmp_path, ended, {"event": "resumed"})) is None


def test_an_ending_of_an_earlier_ludus_says_true_or_false(tmp_path: Path) -> None:
    for was, word in [(True, "expected"), (False, "no")]:
        ending = directory.last_ending(told(tmp_path, {"event": "finished", "exact": was}))
        assert ending == {"event": "finished", "exact": word}


def test_damaged_lines_of_the_journal_are_left_out(tmp_path: Path) -> None:
    ended = {"event": "failed", "exact": "no"}
    storage = told(tmp_path, "[" * 100_000, "{", "5", "null", '{"event": []}', ended, "\x80")
    assert directory.last_ending(storage) == ended


@pytest.mark.parametrize(
    "spoilt",
    [
        {"exact": "yes"},
        {"exact": []},
        {"counters": []},
        {"counters": {"epoch": "3"}},
        {"best": {"score": "high", "metric": "loss"}},
        {"best": {"score": 1.0}},
        {"best": "the first"},
    ],
    ids=str,
)
def test_an_ending_of_the_wrong_types_is_an_error_not_a_surprise(
    spoilt: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="does not say plainly how the run ended"):
        directory.last_ending(told(tmp_path, {"event": "finished", **spoilt}))


@pytest.mark.parametrize("note", [b"[]", b"{", b'{"format": 2}', b'{"format": 1, "kind": []}'])
def test_a_note_that_cannot_be_one_is_refused(note: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(note)
    with pytest.raises(LudusError, match=rf"^{tmp_path}/run\.json.*; restore it from a backup, or"):
        directory.read_note(LocalStorage(tmp_path))
