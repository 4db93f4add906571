"""Run directories that fit a network, stopped half way under config version 5, go on to the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ludus.config import strict_yaml
from ludus.session.build import rebuild_trainer
from ludus.session.fingerprint import differences
from ludus.store import checkpoint
from ludus.testing.differences import ending_of

HERE = Path(__file__).parent / "old_fits"
ENDINGS = HERE / "endings.json"
KINDS = ("supervised", "active")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_version_5_goes_on_by_the_same_metrics_to_the_same_end(
    kind: str, tmp_path: Path
) -> None:
    """Its best model goes by one metric, and early stopping, which ends it, by another."""
    place = tmp_path / kind
    shutil.copytree(HERE / kind, place)
    old = strict_yaml.parse((place / "config.yaml").read_text(), source="config.yaml")
    assert (old["version"], old["with_validation"]) == (5, True)
    trainer: Any
    trainer, storage = rebuild_trainer(place, [])
    saved: Any = checkpoint.read_newest(storage, damaged=pytest.fail)
    result = trainer.fit(root=str(tmp_path), name=kind, resume="approximate")
    assert result.counters["opt_steps"] > saved.state["run"]["counters"]["opt_steps"]
    assert result.counters["epoch"] < 20
    if kind == "supervised":
        assert result.best["metric"] == "validation/epoch_accuracy"
        assert "train/epoch_loss has not improved for 2 evaluations" in result.reason
    now = checkpoint.verify(storage, checkpoint.numbers(storage)[-1])["fingerprint"]
    if differences(saved.manifest["fingerprint"], now):
        pytest.skip("another machine or other packages: only an approximate end can be promised")
    found = ending_of(place)
    expected = json.loads(ENDINGS.read_text())[kind]
    assert {"state": found.state, "metrics": found.metrics} == expected
