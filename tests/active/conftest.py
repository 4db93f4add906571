"""A small config of active learning, and what is left of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from tests.command_line import DATA, MODEL, Ludus, in_process

HUMAN = {"kind": "human", "class_names": None}


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    """Return the command line, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def small_active(**changes: Any) -> Any:
    """Return a config that asks for wines in three rounds and shows nothing."""
    own = {
        "name": "wines", "data": DATA, "model": {**MODEL, "dropout": 0.2}, "batch_size": 8,
        "max_rounds": 3, "max_epochs": 2, "initial_labels": 6, "queries": 4, "engine": "tape",
        "evaluation.patience": None, "settings.display": "none", "settings.loggers": [],
        "settings.device": "cpu", "settings.threads": 1,
    }  # fmt: skip
    return ludus.example("active").replace(**{**own, **changes})


def file_of(path: Path, **changes: Any) -> str:
    """Write such a config to a file and return its path."""
    path.write_text(small_active(**changes).to_yaml(), encoding="utf-8")
    return str(path)


def targets_of(config: Any) -> list[int]:
    """Return the true classes of the pool of a config."""
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    found: list[int] = trainer.examples.targets_in_memory.tolist()
    return found
