"""`evaluation.keep`: the best models of a run, the best as models/best, the others by their own names."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config.base import from_data
from ludus.core import Run
from ludus.core.errors import CheckpointError, ConfigError
from ludus.core.states import StateError
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from ludus.testing.differences import ending_of
from ludus.testing.trainers import check_kill_anywhere, run_trainer
from tests.command_line import Ludus, in_process
from tests.config.older import as_version_4
from tests.supervised.conftest import Tiny
from tests.supervised.test_stopping import Scripted

BEST = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 3}
OFTEN = {
    "settings.checkpoint": {
        "every_seconds": 0.0, "every_stages": 3, "every_opt_steps": 0, "every_epochs": 0,
        "keep_last": 2, "on_failure": "continue",
    }
}  # fmt: skip


def heard(judge: Judge, values: list[float]) -> list[str]:
    """Let a judge hear these values at the boundaries 1, 2, ...; return the names of all it kept."""
    kept: list[str] = []
    for boundary, value in enumerate(values, 1):
        run = Run()
        run.boundaries = boundary
        run.keep_model = lambda name, weights, note: kept.append(name)
        judge.update(run, {"loss": value}, lambda score: {})
    return kept


@pytest.mark.parametrize("keep", [1, 2, 3, 7])
def test_the_judge_keeps_those_that_sorting_all_would_put_first(keep: int) -> None:
    draw = random.Random(keep)
    for _ in range(50):
        values = [draw.choice([0.5, 1.0, 1.5, 2.0, math.nan, -math.inf]) for _ in range(12)]
        judge = Judge(Score("loss", "loss", keep=keep))
        heard(judge, values)
        finite = [(value, place) for place, value in enumerate(values, 1) if math.isfinite(value)]
        expected = [f"models/best-{place:010d}" for _, place in sorted(finite)[:keep]]
        found = [judge.best, *judge.runners_up] if judge.best else []
        assert [one["model"] for one in found if one] == expected


def test_the_state_of_a_judge_holds_the_runners_up_and_that_of_one_model_is_as_it_was() -> None:
    judge, other = (Judge(Score("loss", "loss", keep=2)) for _ in range(2))
    heard(judge, [3.0, 2.0, 2.5])
    state = json.loads(json.dumps(judge.state_dict()))
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert [one["score"] for one in other.runners_up] == [2.5]
    assert {*Judge(Score("loss", "loss")).state_dict()} == {"best", "peak", "num_bad"}
    for broken in (
        {**state, "runners_up": state["runners_up"] * 2},
        {**state, "best": None},
        {**state, "runners_up": [{**state["runners_up"][0], "model": "models/mine"}]},
    ):
        with pytest.raises(StateError):
            other.load_state_dict(broken)
    assert other.state_dict() == state


def test_what_is_lost_makes_room_for_the_next() -> None:
    judge = Judge(Score("loss", "loss", keep=3))
    heard(judge, [1.0, 2.0, 3.0])
    judge.forget_models(["models/best-0000000001"])
    assert judge.best
    assert judge.best["score"] == 2.0
    judge.forget_models(None)
    assert judge.best is None
    assert judge.runners_up == []


def test_a_run_keeps_its_best_models_and_removes_those_that_fall_out(
    tiny: Tiny, tmp_path: Path
) -> None:
    trainer = ludus.Trainer(tiny(max_epochs=8, **BEST, **OFTEN))
    trainer.set_evaluator(Scripted(5.0, 3.0, 4.0, 2.0, 6.0, 3.5, 6.0))
    result = trainer.fit(root=str(tmp_path))
    assert result.best
    assert result.best["score"] == 2.0
    assert [one["score"] for one in result.runners_up] == [3.0, 3.5]
    storage = LocalStorage(str(result.run_dir))
    for one in (result.best, *result.runners_up):
        assert read_model(storage, one["model"])[1]["score"] == one["score"]
    assert read_model(storage, "models/best")[1]["score"] == 2.0
    kept = [one["model"].removeprefix("models/") for one in (result.best, *result.runners_up)]
    assert sorted(storage.names("models")) == sorted(["best", *kept])


def test_a_run_killed_anywhere_keeps_the_same_models(tiny: Tiny, tmp_path: Path) -> None:
    def make() -> Any:
        return ludus.Trainer(tiny(max_epochs=4, **{**BEST, "evaluation.mode": "max"}, **OFTEN))

    check_kill_anywhere(make, tmp_path, max_kills=3)
    names = [name for name, _ in ending_of(tmp_path / "unbroken").models]
    assert len(names) == 4


def test_a_judge_that_loses_its_record_is_noticed(tiny: Tiny, tmp_path: Path) -> None:
    """The negative control of the test above."""

    def make() -> Any:
        return ludus.Trainer(tiny(max_epochs=4, **{**BEST, "evaluation.mode": "max"}, **OFTEN))

    run_trainer(make, tmp_path, "whole")
    run_trainer(make, tmp_path, "cut", kill_at=26)
    run_trainer(make, tmp_path, "cut", leave_out="judge", lost=[])
    assert ending_of(tmp_path / "cut") != ending_of(tmp_path / "whole")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


@pytest.fixture
def run(tiny: Tiny, tmp_path: Path) -> tuple[Path, Any]:
    result = ludus.Trainer(tiny(max_epochs=4, **BEST, name="one")).fit(root=str(tmp_path))
    return tmp_path / "one", result


def test_commands_name_each_of_them(run: tuple[Path, Any], call: Ludus) -> None:
    place, result = run
    second = result.runners_up[0]
    told = json.loads(call("eval", str(place), "--model", Path(second["model"]).name, "--json").out)
    assert told["model"] == second["model"]
    assert [one["score"] for one in told["runners_up"]] == [o["score"] for o in result.runners_up]
    page = place / "page.html"
    call("report", str(place), "--out", str(page))
    text = page.read_text()
    assert "The next best models" in text
    assert all(Path(one["model"]).name in text for one in result.runners_up)


def test_one_that_is_damaged_is_named_and_a_resume_goes_on_without_it(
    run: tuple[Path, Any], call: Ludus, tiny: Tiny
) -> None:
    place, result = run
    second, third = result.runners_up
    shutil.rmtree(place / second["model"])
    told = call("eval", str(place), "--model", Path(second["model"]).name)
    assert told.code == 1
    assert "is damaged" in told.err
    storage = LocalStorage(str(place))
    with pytest.raises(CheckpointError):
        checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    longer = tiny(max_epochs=5, **BEST, name="one")
    again = ludus.Trainer(longer).fit(root=str(place.parent), resume="approximate")
    models = [one["model"] for one in (again.best, *again.runners_up) if one]
    assert second["model"] not in models
    assert third["model"] in models


def test_older_files_keep_one(tiny: Tiny) -> None:
    data = as_version_4(tiny(**BEST)) | {"version": 3}
    del data["best_model"]["keep"]
    assert from_data(data, source="old").evaluation.keep == 1  # type: ignore[attr-defined]
    new = tiny(**BEST).model_dump()
    del new["evaluation"]["keep"]
    with pytest.raises(ConfigError, match=r"evaluation\.keep"):
        from_data(new, source="new")
    with pytest.raises(ConfigError, match=r"evaluation\.keep"):
        tiny(**{**BEST, "evaluation.keep": -1})
