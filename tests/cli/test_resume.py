"""`ludus resume` looks at a run once, and tells what it does in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.store.local import LocalStorage
from tests.command_line import Ludus, in_process, small_config
from tests.rl.small import small


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


@pytest.mark.parametrize("kind", ["supervised", "dqn"])
def test_one_storage_is_opened_and_the_config_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Ludus, kind: str
) -> None:
    config = small_config(max_epochs=1) if kind == "supervised" else small(kind)
    run = str(ludus.build_trainer(config).fit(root=str(tmp_path), name="mine").run_dir)
    opened: list[str] = []
    read: list[str] = []
    start, look = LocalStorage.__init__, LocalStorage.read

    def opening(self: LocalStorage, root: Any, *more: Any, **options: Any) -> None:
        opened.append(str(root))
        start(self, root, *more, **options)

    def reading(self: LocalStorage, name: str, **options: Any) -> bytes:
        read.append(name)
        return look(self, name, **options)

    monkeypatch.setattr(LocalStorage, "__init__", opening)
    monkeypatch.setattr(LocalStorage, "read", reading)
    longer = "max_epochs=2" if kind == "supervised" else "steps.max_opt_steps=30"
    told = call("resume", run, longer, "--json").json
    assert (told["status"], told["run_dir"]) == ("finished", run)
    assert opened.count(run) == 1
    assert read.count("config.yaml") == 1


def test_what_a_shorter_run_does_without_is_told_in_a_sentence(tmp_path: Path, call: Ludus) -> None:
    run = str(ludus.build_trainer(small("dqn")).fit(root=str(tmp_path), name="mine").run_dir)
    told = call("resume", run, "steps.max_opt_steps=3").refusal().splitlines()
    assert len(told) == 2
    assert told[0].startswith(
        "steps.max_opt_steps on the command line ends the run before these are due"
    )
    assert told[1].startswith("ludus: 'steps.max_opt_steps' of a run may be raised, not lowered")
