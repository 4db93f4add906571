"""What a run that has begun decided is not decided anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ludus
from ludus.session.begun import as_begun, changes_by_fit, data_of, has_begun
from ludus.store.local import LocalStorage
from tests.conftest import modules_in


@pytest.mark.parametrize(
    ("written", "engine"),
    [("engine: eager", "eager"), ("compile: false", "tape"), ("compile: true", "compiled")],
)
def test_auto_is_what_it_was_when_the_run_began_also_in_an_older_file(
    tmp_path: Path, written: str, engine: str
) -> None:
    config = ludus.example("dqn")
    assert config.engine == "auto"
    assert as_begun(config, LocalStorage(tmp_path)) is config
    text = config.to_yaml().replace("engine: auto", written)
    (tmp_path / "config.yaml").write_text(text)
    assert as_begun(config, LocalStorage(tmp_path)).engine == engine
    named = config.replace(engine="tape")
    assert as_begun(named, LocalStorage(tmp_path)) is named


def test_a_run_has_begun_once_it_has_its_note(tmp_path: Path) -> None:
    assert not has_begun(None)
    assert not has_begun(LocalStorage(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    assert has_begun(LocalStorage(tmp_path))


def test_what_a_short_fit_turned_off_is_known_by_keys_and_not_by_a_sentence(
    tmp_path: Path,
) -> None:
    config = ludus.example("dqn").replace(engine="eager", **{"evaluation.patience": 3})
    path = "evaluation.patience"
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(config.replace(**{path: None}).to_yaml())
    said = {"event": "changed_by_fit", "reason": "in any words", "keys": {path: None}}
    (tmp_path / "events.jsonl").write_text(json.dumps(said) + "\n")
    notes: list[str] = []
    assert as_begun(config, LocalStorage(tmp_path), notes).evaluation.patience is None
    assert [note.partition(",")[0] for note in notes] == [f"'{path}' stays null"]


def test_a_key_that_fit_changes_is_told_as_a_sentence_and_as_data() -> None:
    config = ludus.example("dqn")
    (note,) = changes_by_fit(config, {"evaluation.episodes": None}, 3)
    before = config.evaluation.episodes
    assert note == f"for fit(max_steps=3) 'evaluation.episodes' is null rather than {before}"
    assert data_of(note) == {"keys": {"evaluation.episodes": None}}
    assert data_of("another sentence") == {}


CASES = modules_in("contracts/trainers")


@pytest.mark.parametrize(
    "kind", ["dqn", "fused_dqn", "fused_ppo", "ppo", "solo_agent", "vanilla_ppo"]
)
def test_a_run_that_fit_made_short_is_made_longer_by_fit(kind: str, tmp_path: Path) -> None:
    """An interval that the first was too short for is 0 in the run, and stays so, which is told."""
    steps = []
    for index, max_steps in enumerate((3, 5, 9)):
        trainer: ludus.Trainer = CASES[kind].make()
        result = trainer.fit(max_steps=max_steps, root=str(tmp_path), resume=index > 0)
        assert result.status == "finished"
        steps.append(result.counters["opt_steps"])
        assert steps[-1] >= max_steps
    assert steps == sorted(steps)
    (run,) = tmp_path.iterdir()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    told = [event["reason"] for event in events if event["event"] == "changed_by_fit"]
    off = [
        re.match(r"for fit\(max_steps=3\) '([\w.]+)' is (?:0|null) rather", text) for text in told
    ]
    for match in filter(None, off):
        still = (f"'{match[1]}' stays ", f"for fit(max_steps=9) '{match[1]}' is ")
        assert any(text.startswith(still) for text in told)
