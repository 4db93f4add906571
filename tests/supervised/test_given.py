"""What a script gives to a trainer: its state is saved or the run says so, and a resume needs it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import CheckpointError
from tests.rl.small import small
from tests.supervised.conftest import history
from tests.supervised.test_evaluators import PATIENT


class Rising:
    """An evaluator whose scores rise with every call."""

    def __init__(self) -> None:
        self.count = 0

    def evaluate(self, agent: Any) -> float:
        self.count += 1
        return float(self.count)


class SavedRising(Rising):
    """One that a resume brings back."""

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Any) -> None:
        self.count = state["count"]


class DerivedRising(Rising):
    derived = ("count",)


class Writing:
    """A recorder that counts what it wrote."""

    def __init__(self) -> None:
        self.num_written = 0

    def write(self, record: Any) -> None:
        self.num_written += 1


class Pausing:
    """Interrupts a run after so many optimisation steps."""

    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_step(self, run: ludus.Run) -> None:
        run.interrupted = run.counters["opt_steps"] == self.at


def fit(config: Any, evaluator: Any, root: Path, *, at: int = -1, **options: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    if evaluator is not None:
        trainer.set_evaluator(evaluator)
    trainer.add(Pausing(at))
    return trainer.fit(root=str(root), name="run", **options)


def test_an_evaluator_that_changes_without_being_saved_makes_the_run_not_exact(
    tmp_path: Path, tiny: Any
) -> None:
    for config in (small("dqn"), small("ppo"), tiny(**PATIENT)):
        result = fit(config, Rising(), tmp_path / config.kind)
        assert result.inexact_because == (
            "the evaluator Rising changes (count), which is not saved; give it state_dict and"
            ' load_state_dict, or, if it decides nothing, name it in the class: derived = ["count"]',
        )
    assert fit(small("dqn"), DerivedRising(), tmp_path / "derived").exact


def test_an_object_whose_method_is_the_score_is_looked_at_too(tmp_path: Path) -> None:
    class Scoring(Rising):
        def __call__(self, agent: Any) -> float:
            return self.evaluate(agent)

    for name, score in (("method", Rising().evaluate), ("object", Scoring())):
        result = fit(small("dqn"), ludus.Evaluator(score=score), tmp_path / name)
        assert len(result.inexact_because) == 1
        assert "changes (count), which is not saved" in result.inexact_because[0]
    saved = ludus.Evaluator(score=SavedRising().evaluate)
    assert fit(small("dqn"), saved, tmp_path / "saved").exact


@pytest.mark.parametrize("kind", ["dqn", "ppo", "supervised"])
def test_an_evaluator_with_a_state_is_brought_back_by_a_resume(
    kind: str, tmp_path: Path, tiny: Any
) -> None:
    config, metric = small(kind) if kind != "supervised" else tiny(**PATIENT), "eval/return_mean"
    metric = metric if kind != "supervised" else "validation/score"
    straight = fit(config, SavedRising(), tmp_path / "straight")
    at = straight.counters["opt_steps"] * 2 // 3
    assert fit(config, SavedRising(), tmp_path / "broken", at=at).status == "interrupted"
    result = fit(config, SavedRising(), tmp_path / "broken", resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    scores = history(result.run_dir, metric)
    assert scores == history(straight.run_dir, metric) == [float(n + 1) for n in range(len(scores))]


def test_what_is_a_part_already_is_saved_once(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("dqn"))
    trainer.set_evaluator(ludus.AsyncEvaluator(small("dqn")))
    trainer.prepare(max_steps=None)
    assert [name for name in trainer.all_parts() if "eval" in name] == ["evaluation"]
    trainer.close()

    class Judging(ludus.RLTrainer):
        def score(self, agent: Any) -> float:
            return float(self.step)

    own = Judging(small("dqn"))
    own.set_evaluator(ludus.Evaluator(score=own.score))
    assert own.fit(root=str(tmp_path)).exact


def test_a_recorder_that_changes_without_being_saved_makes_the_run_not_exact(
    tmp_path: Path,
) -> None:
    trainer: Any = ludus.build_trainer(small("dqn"))
    result = trainer.train(recorder=Writing(), root=str(tmp_path))
    assert len(result.inexact_because) == 1
    assert "the recorder Writing changes (num_written)" in result.inexact_because[0]


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        (SavedRising, None, "given evaluator: SavedRising -> None"),
        (DerivedRising, None, "given evaluator: DerivedRising -> None"),
        (None, DerivedRising, "given evaluator: None -> DerivedRising"),
        (SavedRising, DerivedRising, "given evaluator: SavedRising -> DerivedRising"),
    ],
)
@pytest.mark.parametrize("kind", ["dqn", "supervised"])
def test_a_resume_with_another_evaluator_is_refused_and_nothing_changes(
    kind: str, first: Any, then: Any, told: str, tmp_path: Path, tiny: Any
) -> None:
    """The best of the run would be judged on two scales."""
    config = small(kind) if kind != "supervised" else tiny(**PATIENT)
    fit(config, first and first(), tmp_path, at=10)
    before = (tmp_path / "run" / "config.yaml").read_bytes()
    with pytest.raises(CheckpointError) as caught:
        fit(config, then and then(), tmp_path, resume=True)
    assert f"({told})" in str(caught.value)
    assert "give the same ones, start a new run, or go on all the same" in str(caught.value)
    assert (tmp_path / "run" / "config.yaml").read_bytes() == before
    result = fit(config, first and first(), tmp_path, resume=True)
    assert (result.status, result.exact) == ("finished", "expected")


def test_a_resume_with_another_evaluator_can_be_forced_and_is_told(tmp_path: Path) -> None:
    fit(small("dqn"), DerivedRising(), tmp_path, at=10)
    result = fit(small("dqn"), None, tmp_path, resume="approximate")
    assert result.status == "finished"
    assert "resumed with given evaluator: DerivedRising -> None" in result.inexact_because[0]
