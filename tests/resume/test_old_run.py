"""A run directory written by version 0.1.0 can be taken up for ever after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ludus.core.errors import CheckpointError
from ludus.session.build import rebuild_trainer
from ludus.session.fingerprint import differences
from ludus.store import checkpoint
from ludus.store.directory import read_lines
from ludus.testing.differences import ending_of

HERE = Path(__file__).parent
EXPECTED = HERE / "old_run_ending.json"
RECORDED_WITH = "AVX512"
"""The instructions of the machine it was written on, which it does not say itself."""

LATER_PARTS = {"learning_rate"}
"""Parts that such a run has now and had not then; all others end with the same bytes."""


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    shutil.copytree(HERE / "old_run", tmp_path / "old_run")
    return tmp_path / "old_run"


def test_an_old_run_goes_on_to_its_end(old_run: Path) -> None:
    trainer, storage = rebuild_trainer(old_run, [])
    result = trainer.fit(root=str(old_run.parent), name="old_run", resume="approximate")
    assert result.status == "finished"
    assert result.counters["epoch"] == 4
    assert result.counters["opt_steps"] == 12
    epochs = [
        row["epoch"]
        for row in read_lines(storage, "metrics.jsonl")
        if "validation/epoch_loss" in row
    ]
    assert epochs == [1, 2, 3, 4]


def test_on_the_same_machine_and_packages_it_ends_with_the_bytes_it_always_ended_with(
    old_run: Path,
) -> None:
    trainer, storage = rebuild_trainer(old_run, [])
    saved = checkpoint.read_newest(storage, damaged=pytest.fail)
    assert saved is not None
    trainer.fit(root=str(old_run.parent), name="old_run", resume="approximate")
    found = ending_of(old_run)
    now = checkpoint.verify(storage, checkpoint.numbers(storage)[-1])["fingerprint"]
    if differences({"instructions": RECORDED_WITH, **saved.manifest["fingerprint"]}, now):
        pytest.skip("another machine or other packages: only an approximate end can be promised")
    expected = json.loads(EXPECTED.read_text())
    ended = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    state = {name: part for name, part in ended.state.items() if name not in LATER_PARTS}
    assert {"state": checkpoint.digest_of(state), "metrics": found.metrics} == expected


@pytest.mark.covers("002-S4")
def test_where_the_machine_differs_it_goes_on_only_when_asked_and_says_so(old_run: Path) -> None:
    trainer, _ = rebuild_trainer(old_run, ["settings.threads=2"])
    with pytest.raises(CheckpointError, match=r"threads: 1 -> 2.*--approximate"):
        trainer.fit(root=str(old_run.parent), name="old_run", resume=True)
    trainer, _ = rebuild_trainer(old_run, ["settings.threads=2"])
    result = trainer.fit(root=str(old_run.parent), name="old_run", resume="approximate")
    assert not result.exact
    assert any("threads: 1 -> 2" in reason for reason in result.inexact_because)
