"""A run that started from another is exact in itself: it never reads the other again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import LudusError
from ludus.store.models import write_model
from ludus.store.places import open_storage
from ludus.testing.differences import ending_of
from ludus.testing.trainers import check_kill_anywhere, run_trainer
from tests.start.sources import Source, named_weights, section, small_run


@pytest.mark.parametrize("kind", ["supervised", "active", "dqn", "ppo", "fused_dqn", "solo_agent"])
@pytest.mark.covers("001-M10")
def test_a_run_from_another_ends_the_same_wherever_it_is_killed(
    kind: str, source: Source, tmp_path: Path
) -> None:
    changed = {"optimizer": True, "normaliser": True, "replay": True}
    known = section(kind, "")
    start = section(kind, source(kind), **{k: v for k, v in changed.items() if k in known})
    if kind in ("fused_dqn", "dqn"):
        start["learning_rates"] = [{"prefix": "host" if kind == "fused_dqn" else "q", "rate": 0.5}]
    more: dict[str, Any] = {}
    if kind == "active":
        start["optimizer"], more = (
            False,
            {"round_start": "cold", "max_rounds": 2, "initial_labels": 40},
        )
    check_kill_anywhere(
        lambda: ludus.build_trainer(small_run(kind, start=start, **more)), tmp_path, max_kills=2
    )


def begun_from(run: Path, **changed: Any) -> Any:
    start = section("supervised", run, frozen=["layers.0"], **changed)
    return ludus.build_trainer(small_run("supervised", start=start))


@pytest.fixture
def own_source(source: Source, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source("supervised"), tmp_path / "other"))


def test_a_resume_reads_the_other_run_no_more(own_source: Path, tmp_path: Path) -> None:
    run_trainer(lambda: begun_from(own_source), tmp_path, "whole")
    run_trainer(lambda: begun_from(own_source), tmp_path, "killed", kill_at=11)
    assert (tmp_path / "killed" / "checkpoints").is_dir()
    shutil.rmtree(own_source)
    run_trainer(lambda: begun_from(own_source), tmp_path, "killed")
    assert ending_of(tmp_path / "killed") == ending_of(tmp_path / "whole")


def test_before_the_first_checkpoint_other_weights_are_refused(
    own_source: Path, tmp_path: Path
) -> None:
    trainer = begun_from(own_source)
    trainer.prepare(max_steps=None)
    weights = named_weights(trainer)
    place = tmp_path / "kept"
    write_model(open_storage(tmp_path), "kept", weights, {})

    def make() -> Any:
        return begun_from(own_source, model=str(place))

    run_trainer(make, tmp_path, "whole")
    for name in ("same", "changed"):
        run_trainer(make, tmp_path, name, kill_at=1)
        assert not (tmp_path / name / "checkpoints").exists()
    run_trainer(make, tmp_path, "same")
    assert ending_of(tmp_path / "same") == ending_of(tmp_path / "whole")
    write_model(open_storage(tmp_path), "kept", {k: t + 1 for k, t in weights.items()}, {})
    with pytest.raises(
        LudusError, match="has changed since, and it has no checkpoint yet; put the"
    ):
        run_trainer(make, tmp_path, "changed")


def test_a_run_is_evaluated_and_loaded_when_the_other_is_gone(
    own_source: Path, tmp_path: Path
) -> None:
    begun_from(own_source).fit(root=str(tmp_path), name="mine")
    shutil.rmtree(own_source)
    assert ludus.load(tmp_path / "mine", "last").layers[0].weight.shape[1] == 13
    note = json.loads((tmp_path / "mine" / "run.json").read_text())
    assert note["start"]["run"] == str(own_source)
