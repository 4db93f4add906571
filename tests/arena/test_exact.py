"""Runs of the arena go on exactly: longer, after an interrupt, and only with what they saved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.arena.trainers.vanilla_ppo import VanillaPpoTrainer
from ludus.core.states import StateError
from ludus.session.build import rebuild_trainer
from ludus.testing.differences import ending_of
from tests.arena.small import KL, small_arena

ALWAYS = {"evaluate_every_iterations": 1, "keep_every_iterations": 0}


def fit(root: Path, name: str = "run", *, max_steps: int | None = None, **changed: Any) -> Any:
    trainer: Any = ludus.build_trainer(small_arena(**ALWAYS, **changed))
    trainer.result = trainer.fit(max_steps, root=str(root), name=name)
    return trainer


def equal(one: Any, other: Any) -> bool:
    weights = other.weights()
    return all(torch.equal(weight, weights[name]) for name, weight in one.weights().items())


def go_on(place: Path, *overrides: str) -> None:
    trainer, _ = rebuild_trainer(place, list(overrides))
    trainer.fit(root=str(place.parent), name=place.name, resume=True)


@pytest.mark.covers("002-D6")
def test_a_finished_run_made_longer_ends_as_one_that_was_long_from_the_start(
    tmp_path: Path,
) -> None:
    whole = fit(tmp_path, "whole", max_iterations=3)
    short = fit(tmp_path, "short", max_iterations=2)
    assert not equal(short, whole)
    trainer, _ = rebuild_trainer(tmp_path / "short", ["max_iterations=3"])
    trainer.fit(root=str(tmp_path), name="short", resume=True)
    assert equal(trainer, whole)
    with pytest.raises(ludus.LudusError, match="may be raised, not lowered"):
        go_on(tmp_path / "short", "max_iterations=1")


def test_fit_makes_whole_iterations_of_at_least_so_many_steps_and_says_so(tmp_path: Path) -> None:
    five = fit(tmp_path, max_steps=5)
    assert five.result.counters["opt_steps"] == 8
    told = Path(five.result.run_dir, "events.jsonl").read_text()
    assert "the run makes 8 optimisation steps, 2 whole iterations of 4" in told
    assert equal(five, fit(tmp_path, "two", max_iterations=2))


@pytest.mark.covers("002-D6")
def test_the_factor_of_the_kl_penalty_is_saved(tmp_path: Path) -> None:
    trainer = fit(tmp_path, **{"ppo.loss": {**KL, "target": 1e6}})
    beta = trainer.state_dict()["update"]["learner"]["weights"]["objective.beta"]
    # Three iterations of four updates, the first of which has moved nothing yet.
    assert float(beta) == pytest.approx(0.5**9)


class Asked(VanillaPpoTrainer):
    """Is asked to pause in a stage of this name, once."""

    stage = ""

    def _roll_out_asked(self) -> None:
        played = self.evaluation._played

        def asked(*given: Any) -> Any:
            if self.run.cursor[-1].name == self.stage:
                self.run.interrupted = True
            return played(*given)

        self.evaluation._played = asked  # type: ignore[method-assign]

    def open(self) -> None:
        super().open()
        self._roll_out_asked()


@pytest.mark.covers("002-D6")
@pytest.mark.parametrize("stage", ["evaluate", "test"])
def test_an_evaluation_or_a_test_that_is_interrupted_is_done_again(
    stage: str, tmp_path: Path
) -> None:
    config = small_arena(**ALWAYS, max_iterations=2)
    whole = VanillaPpoTrainer(config).fit(root=str(tmp_path), name="whole")
    asked = Asked(config)
    asked.stage = stage
    assert asked.fit(root=str(tmp_path), name="asked").status == "interrupted"
    phase = "eval" if stage == "evaluate" else "test"
    assert f"{phase}/accuracy" not in (tmp_path / "asked" / "metrics.jsonl").read_text()
    done = VanillaPpoTrainer(config).fit(root=str(tmp_path), name="asked", resume=True)
    one, other = (ending_of(str(result.run_dir)) for result in (whole, done))
    assert one.metrics == other.metrics
    assert one.models == other.models


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(fit(tmp_path_factory.mktemp("finished"), max_iterations=1).result.run_dir)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("num_epochs: 2", "num_epochs: 1"),
        ("learning_rate: 0.01", "learning_rate: 0.02"),
        ("num_deciding: 2", "num_deciding: 1"),
        ("verifier_reward: 1.0", "verifier_reward: 2.0"),
    ],
)
def test_a_run_whose_config_was_edited_is_not_gone_on_with(
    old: str, new: str, finished: Path, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(finished, tmp_path / "run"))
    text = (place / "config.yaml").read_text()
    assert old in text
    (place / "config.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(ludus.LudusError):
        go_on(place, "max_iterations=2")


@pytest.mark.parametrize("part", ["waiting", "meter", "update"])
def test_a_state_of_other_shapes_is_refused_by_name(part: str) -> None:
    trainer: Any = ludus.build_trainer(small_arena())
    trainer.prepare(max_steps=None)
    trainer.pending_rollouts.put("rollouts", trainer._roll_out(0))
    saved = trainer.parts()[part].state_dict()
    columns = saved["rollouts"] if part == "waiting" else saved
    name = "index" if part == "waiting" else "totals"
    columns[name] = torch.zeros(3, 7, 2, dtype=columns[name].dtype)
    with pytest.raises(StateError):
        trainer.parts()[part].load_state_dict(saved)
