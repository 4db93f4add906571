"""What each round begins from: the first weights, those of the round before, or those of a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import CheckpointError, ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from ludus.testing.differences import ending_of
from ludus.testing.trainers import count_boundaries, run_trainer
from tests.active.conftest import small_active
from tests.command_line import MODEL

ONE_STEP = {"max_epochs": 1, "batch_size": 64, "evaluation.keep": 0, "engine": "eager"}


def network(seed: int, outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(13, 6), nn.ReLU(), nn.Linear(6, outputs))


def given(seed: int, *, models: int = 1, **changes: Any) -> Any:
    """Return a trainer of networks that a script drew by this seed."""
    trainer: Any = ludus.build_trainer(small_active(model=None, **changes))
    nets = [network(10 * seed + place) for place in range(models)]
    trainer.set_model(nets if models > 1 else nets[0])
    return trainer


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a directory of weights."""
    torch.manual_seed(3)
    place = tmp_path / "kept" / "best"
    place.parent.mkdir()
    Model(small_active().model).save_model(place)
    return place


def begun_with(trainer: Any) -> list[dict[str, Any]]:
    """Run it; return the weights before the first step of each round."""
    found: list[dict[str, Any]] = []

    step = trainer.train_step

    def watched(batch: object, batch_idx: int) -> Any:
        found.append({n: t.clone() for n, t in trainer.model.state_dict().items()})
        return step(batch, batch_idx)

    trainer.train_step = watched
    trainer.fit(runtime=InMemoryRuntime)
    return found


def test_each_round_begins_from_the_weights_of_the_checkpoint(kept: Path) -> None:
    config = small_active(round_start="checkpoint", starting_checkpoint=str(kept), **ONE_STEP)
    torch.manual_seed(3)
    expected = Model(small_active().model).state_dict()
    rounds = begun_with(ludus.build_trainer(config))
    assert len(rounds) == 3
    for weights in rounds:
        assert all(torch.equal(weights[name], expected[name]) for name in expected)
    cold = begun_with(ludus.build_trainer(small_active(**ONE_STEP)))
    assert not torch.equal(*(next(iter(one[1].values())) for one in (rounds, cold)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"round_start": "checkpoint"},
            "'starting_checkpoint' is null; give a directory of weights",
        ),
        ({"starting_checkpoint": "a"}, "'starting_checkpoint' is given, and 'round_start' is cold"),
        (
            {"round_start": "checkpoint", "starting_checkpoint": "a", "model": None, "new_head": 3},
            "which is for one model as it is; with 'candidates' or 'new_head' use round_start: cold",
        ),
    ],
)
def test_a_start_that_does_not_fit_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        small_active(**changes)


def test_weights_that_are_not_there_or_do_not_fit_are_told_before_the_run_begins(
    kept: Path, tmp_path: Path
) -> None:
    def refused(match: str, **changes: Any) -> None:
        trainer = ludus.build_trainer(small_active(round_start="checkpoint", **changes))
        with pytest.raises(ConfigError, match=match):
            trainer.fit(root=str(tmp_path / "runs"))
        assert not (tmp_path / "runs").exists()

    refused("'starting_checkpoint': .*nowhere", starting_checkpoint=str(tmp_path / "nowhere"))
    wide = {"starting_checkpoint": str(kept), "model": {**MODEL, "widths": [9]}}
    refused("'starting_checkpoint': the saved weights do not fit this model", **wide)
    trainer = given(1, models=2, round_start="checkpoint", starting_checkpoint=str(kept))
    with pytest.raises(ConfigError, match="is for one model, and 2 were given"):
        trainer.fit(runtime=InMemoryRuntime)


Make = Callable[[bool], Any]


def check_killed(make: Make, root: Path, *, kills: int = 3) -> None:
    """Kill and resume; `make` is told whether it makes the trainer of a resume."""
    run_trainer(lambda: make(False), root, "unbroken")
    unbroken, total = ending_of(root / "unbroken"), count_boundaries(root / "unbroken")
    for instant in sorted({4 + at * (total - 5) // kills for at in range(kills)}):
        name = f"killed-{instant}"
        assert run_trainer(lambda: make(False), root, name, kill_at=instant) is None
        run_trainer(lambda: make(True), root, name)
        assert ending_of(root / name) == unbroken, f"killed at {instant} of {total}"


@pytest.mark.covers("003-S2")
@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("models", [1, 2])
def test_a_script_that_draws_other_weights_when_it_resumes_ends_all_the_same(
    start: str, models: int, tmp_path: Path
) -> None:
    more = {"selection": "logme"} if models > 1 else {}

    def make(is_resumed: bool) -> Any:
        trainer = given(1 + is_resumed, models=models, round_start=start, ema_decay=0.9, **more)
        trainer.config = trainer.config.replace(**{"settings.checkpoint.every_stages": 1})
        return trainer

    check_killed(make, tmp_path, kills=3)


def test_weights_that_change_after_the_run_has_begun_change_nothing(
    kept: Path, tmp_path: Path
) -> None:
    place = tmp_path / "used"

    def make(is_resumed: bool) -> Any:
        shutil.rmtree(place, ignore_errors=True)
        torch.manual_seed(4 if is_resumed else 3)
        Model(small_active().model).save_model(place)
        return ludus.build_trainer(
            small_active(
                round_start="checkpoint",
                starting_checkpoint=str(place),
                **{"settings.checkpoint.every_stages": 1},
            )
        )

    check_killed(make, tmp_path / "runs", kills=4)


def test_what_a_model_began_with_is_missed_where_it_is_left_out(tmp_path: Path) -> None:
    def make(seed: int) -> Any:
        return given(seed, **{"settings.checkpoint.every_stages": 1})

    run_trainer(lambda: make(1), tmp_path, "unbroken")
    run_trainer(lambda: make(1), tmp_path, "killed", kill_at=12)
    run_trainer(lambda: make(2), tmp_path, "killed", leave_out="candidates")
    assert ending_of(tmp_path / "killed") != ending_of(tmp_path / "unbroken")


def test_a_network_of_another_shape_is_refused_when_it_resumes(tmp_path: Path) -> None:
    def make(outputs: int) -> Any:
        trainer: Any = ludus.build_trainer(small_active(model=None))
        trainer.set_model(network(1, outputs))
        return trainer

    run_trainer(lambda: make(3), tmp_path, "killed", kill_at=12)
    with pytest.raises(CheckpointError, match="the saved state of 'candidates' does not fit it"):
        run_trainer(lambda: make(4), tmp_path, "killed")
