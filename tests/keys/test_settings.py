"""What the settings do, and the keys by which a file is known. None of it changes a result."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.config.base import from_data
from ludus.core.errors import ConfigError, LudusError
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from tests.keys.runs import Outcome, run, tiny
from tests.keys.table import TRAINERS, changes
from tests.supervised.conftest import lines

CHECKPOINT = "settings.checkpoint."


@changes(TRAINERS, "version")
def test_a_file_of_another_version_is_not_read_as_this_one(kind: str) -> None:
    data = tiny(kind).model_dump()
    assert from_data(data, source="x") == tiny(kind)
    with pytest.raises(ConfigError, match="newer than this ludus"):
        from_data({**data, "version": data["version"] + 1}, source="x")


@changes(TRAINERS, "kind")
def test_the_kind_decides_which_trainer_it_is(kind: str) -> None:
    assert ludus.build_trainer(tiny(kind)).kind == kind
    other = "dqn" if kind == "supervised" else "supervised"
    with pytest.raises(ConfigError):
        from_data({**tiny(kind).model_dump(), "kind": other}, source="x")


def fit(kind: str, root: Path, **changed: Any) -> Any:
    """Return the run directory of a tiny run."""
    return Path(str(ludus.build_trainer(tiny(kind, **changed)).fit(root=str(root)).run_dir))


def saves(path: Path) -> list[int]:
    """Return the boundaries at which checkpoints were written that are still there."""
    return checkpoint.numbers(LocalStorage(path))


@changes(TRAINERS, "settings.device", shown_by="supervised, dqn")
def test_the_device_is_the_one_that_is_named(kind: str) -> None:
    assert run(kind).trainer.device == torch.device("cpu")
    with pytest.raises(LudusError, match="cuda"):
        Outcome(tiny(kind, **{"settings.device": "cuda:7"}))
    assert str(Outcome(tiny(kind, **{"settings.device": "auto"})).trainer.device) in ("cpu", "cuda")


@changes(TRAINERS, "settings.threads", "settings.deterministic", shown_by="supervised")
def test_torch_gets_its_threads_and_its_determinism_for_the_run_alone(
    kind: str, tmp_path: Path
) -> None:
    seen = []

    def looked() -> tuple[int, bool, bool]:
        is_filled: bool = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), is_filled

    class Look:
        def before_train(self) -> None:
            seen.append(looked())

    before = looked()
    for threads, is_deterministic in ((1, True), (2, False)):
        changed = {"settings.threads": threads, "settings.deterministic": is_deterministic}
        trainer = ludus.build_trainer(tiny(kind, name=f"run{threads}", **changed))
        trainer.add(Look())
        trainer.fit(root=str(tmp_path))
    # New memory is not filled first: nothing reads what it has not written.
    assert seen == [(1, True, False), (2, False, True)]
    assert looked() == before


@changes(TRAINERS, "settings.display", shown_by="supervised, ppo")
def test_the_display_shows_lines_or_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for display in ("none", "plain", "rich", "minimal", "auto"):
        fit(kind, tmp_path, name=display, **{"settings.display": display})
        shown[display] = capsys.readouterr().out
    assert shown["none"] == ""
    assert "opt_steps" in shown["plain"] or "loss" in shown["plain"]
    # A pipe, as in this test, is not a terminal.
    assert len(shown["auto"].splitlines()) == len(shown["plain"].splitlines())
    assert shown["rich"] != shown["plain"] != shown["minimal"]


@changes(TRAINERS, "settings.loggers", shown_by="supervised, dqn")
def test_metrics_go_to_the_loggers_that_are_listed(kind: str, tmp_path: Path) -> None:
    path = fit(kind, tmp_path, **{"settings.loggers": [{"kind": "csv"}]})
    assert (path / "metrics.csv").exists()
    assert not (fit(kind, tmp_path, name="without") / "metrics.csv").exists()


NEVER = {f"{CHECKPOINT}{key}": 0 for key in ("every_stages", "every_opt_steps", "every_epochs")}
NEVER |= {f"{CHECKPOINT}every_seconds": 0.0, f"{CHECKPOINT}keep_last": 1000}


@changes(
    TRAINERS,
    *(f"{CHECKPOINT}{key}" for key in ("every_stages", "every_opt_steps", "every_epochs")),
    shown_by="supervised, ppo",
)
def test_a_run_is_saved_each_time_so_much_was_done(kind: str, tmp_path: Path) -> None:
    never = fit(kind, tmp_path, name="never", **NEVER)
    assert len(saves(never)) <= 2
    for key, count in (("every_stages", 5), ("every_opt_steps", 3), ("every_epochs", 1)):
        path = fit(kind, tmp_path, name=key, **{**NEVER, f"{CHECKPOINT}{key}": count})
        twice = fit(kind, tmp_path, name=f"{key}-2", **{**NEVER, f"{CHECKPOINT}{key}": 2 * count})
        assert len(saves(path)) > len(saves(twice)) >= len(saves(never))
        counted = {"every_opt_steps": "opt_steps", "every_epochs": "epoch"}.get(key)
        for number in saves(path)[1:-1] if counted else []:
            state = checkpoint.read(LocalStorage(path), number).state
            assert state["run"]["counters"][counted] % count == 0


@changes(TRAINERS, f"{CHECKPOINT}every_seconds", shown_by="supervised")
def test_a_run_is_saved_when_so_much_time_has_passed(kind: str, tmp_path: Path) -> None:
    always = fit(kind, tmp_path, name="always", **{**NEVER, f"{CHECKPOINT}every_seconds": 1e-6})
    rarely = fit(kind, tmp_path, name="rarely", **{**NEVER, f"{CHECKPOINT}every_seconds": 1e6})
    assert len(saves(always)) > len(saves(rarely))


@changes(TRAINERS, f"{CHECKPOINT}keep_last", shown_by="supervised, sac")
def test_so_many_of_the_newest_checkpoints_are_kept(kind: str, tmp_path: Path) -> None:
    for count in (2, 4):
        changed = {f"{CHECKPOINT}every_stages": 2, f"{CHECKPOINT}keep_last": count}
        assert len(saves(fit(kind, tmp_path, name=f"run{count}", **changed))) == count


@changes(TRAINERS, f"{CHECKPOINT}on_failure", shown_by="supervised")
def test_a_checkpoint_that_cannot_be_written_is_told_or_ends_the_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for choice in ("continue", "stop"):
        changed = {f"{CHECKPOINT}on_failure": choice, f"{CHECKPOINT}every_stages": 3}
        trainer = ludus.build_trainer(tiny(kind, name=choice, **changed))
        trainer.add(FullOnce(monkeypatch))
        status = "finished"
        try:
            trainer.fit(root=str(tmp_path))
        except (LudusError, OSError):
            status = "failed"
        assert status == ("finished" if choice == "continue" else "failed")
        assert "No space left" in json.dumps(lines(tmp_path / choice, "events.jsonl"))


class FullOnce:
    """Lets the first checkpoint after an epoch find no space on the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def after_epoch(self) -> None:
        write = checkpoint.write

        def refuse(*given: Any, **more: Any) -> None:
            self._monkeypatch.setattr(checkpoint, "write", write)
            raise OSError(errno.ENOSPC, "No space left on device")

        self._monkeypatch.setattr(checkpoint, "write", refuse)
