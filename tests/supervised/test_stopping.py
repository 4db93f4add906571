"""Early stopping, the best model and milestones: exact in number, and never fooled by NaN."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus import Model, Trainer
from ludus.core.errors import CheckpointError, ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.fit.watchers import make_judge, with_judge
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.supervised.conftest import Tiny, history, lines, models

NAN, INF = math.nan, math.inf


class Scripted:
    """An evaluator that gives the scores it was told, one an epoch, then the last for ever."""

    def __init__(self, *scores: float, metric: str = "validation/epoch_loss") -> None:
        self.scores = list(scores)
        self.metric = metric

    def evaluate(self, agent: Model) -> tuple[float, dict[str, float]]:
        score = self.scores.pop(0) if len(self.scores) > 1 else self.scores[0]
        return score, {self.metric: score}


def stopping(**changes: Any) -> dict[str, Any]:
    return {f"evaluation.{key}": value for key, value in {"patience": 3, **changes}.items()}


def run_with(evaluator: Scripted, config: Any, tmp_path: Path) -> Any:
    trainer = Trainer(config)
    trainer.set_evaluator(evaluator)
    return trainer.fit(root=str(tmp_path))


@pytest.mark.covers("003-D3")
@pytest.mark.parametrize(
    ("scores", "epochs"),
    [
        # Best in the second epoch, so three bad ones end it after the fifth.
        ([1.0, 0.9, 1.0, 0.95, 0.9], 5),
        # Another best starts the count anew.
        ([1.0, 2.0, 2.0, 0.5, 2.0, 2.0, 2.0], 7),
        # A negative metric counts like any other.
        ([-1.0, -2.0, -1.5, -1.9, -2.0], 5),
        # What is not finite is never better, not even at first.
        ([NAN, NAN, NAN], 3),
        ([NAN, 5.0, NAN, -INF, INF], 5),
        # Values above the 1e6 from which the original began.
        ([3e6, 2e6, 4e6, 4e6, 4e6], 5),
    ],
)
def test_a_run_stops_after_exactly_its_patience(
    tiny: Tiny, tmp_path: Path, scores: list[float], epochs: int
) -> None:
    """Not one epoch later; negative, large and non-finite values change nothing in that."""
    result = run_with(Scripted(*scores), tiny(max_epochs=20, **stopping()), tmp_path)
    assert result.counters["epoch"] == epochs
    assert result.status == "stopped"
    assert "validation/epoch_loss has not improved for 3 evaluations" in result.reason


def test_patience_one_stops_at_the_first_bad_epoch(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(max_epochs=20, **stopping(patience=1))
    assert run_with(Scripted(3.0, 2.0, 2.0), config, tmp_path).counters["epoch"] == 3


def test_a_run_that_keeps_improving_is_not_stopped(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(max_epochs=6, **stopping(patience=1))
    scores = [float(-number) for number in range(6)]
    result = run_with(Scripted(*scores), config, tmp_path)
    assert (result.status, result.counters["epoch"]) == ("finished", 6)


@pytest.mark.covers("003-S1")
def test_accuracy_goes_up_by_its_name_and_down_if_so_given(tiny: Tiny, tmp_path: Path) -> None:
    metric = "validation/epoch_accuracy"
    rising = [0.1, 0.2, 0.3, 0.4]
    for mode, epochs in ((None, 6), ("max", 6), ("min", 3)):
        config = tiny(max_epochs=8, **stopping(metric=metric, mode=mode, patience=2))
        evaluator = Scripted(*rising, metric=metric)
        result = run_with(evaluator, config, tmp_path / str(mode))
        assert result.counters["epoch"] == epochs


def test_the_best_model_is_strictly_better_and_never_non_finite(tiny: Tiny, tmp_path: Path) -> None:
    """Row 10 of the faults: best is never non-finite. A tie keeps the earlier one."""
    kept: dict[int, Any] = {}

    class Keeping(Trainer):
        def after_epoch(self) -> None:
            kept[self.epoch + 1] = self.weights()

    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    trainer = Keeping(tiny(max_epochs=7, **best))
    trainer.set_evaluator(Scripted(NAN, 3.0, 2.0, 2.0, -INF, NAN, 2.5))
    result = trainer.fit(root=str(tmp_path))
    assert result.best is not None
    assert result.best["score"] == 2.0
    assert result.best["counters"]["epoch"] == 3
    for name in (result.best["model"], "models/best"):
        weights, note = read_model(LocalStorage(str(result.run_dir)), name)
        assert all(tensor.equal(kept[3][key]) for key, tensor in weights.items())
        assert note["score"] == 2.0
        assert (note["architecture"], note["dataset"]) == ("mlp", "wine")
    assert not kept[3]["layers.0.weight"].equal(kept[4]["layers.0.weight"])


def test_without_a_finite_score_there_is_no_best_model(tiny: Tiny, tmp_path: Path) -> None:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    result = run_with(Scripted(NAN), tiny(**best), tmp_path)
    assert result.best is None
    assert not models(result.run_dir)
    assert len(history(result.run_dir, "test/loss")) == 1


@pytest.mark.covers("003-M3")
def test_milestones_are_named_after_model_data_experiment_and_epoch(
    tiny: Tiny, tmp_path: Path
) -> None:
    """Model Architecture + Dataset Name + Experiment Name + Epoch Number."""
    config = tiny(max_epochs=5, keep_every_epochs=2, experiment="Efficient Training!")
    trainer = Trainer(config)
    result = trainer.fit(root=str(tmp_path))
    prefix = "mlp_wine_efficient-training-_epoch_"
    assert models(result.run_dir) == [f"{prefix}2", f"{prefix}4", f"{prefix}5"]
    model = Model(config.model)
    model.load_model(Path(str(result.run_dir)) / "models" / f"{prefix}5")
    last = trainer.model.state_dict()
    assert all(tensor.equal(last[name]) for name, tensor in model.state_dict().items())


@pytest.mark.covers("003-S1")
def test_a_milestone_is_written_once(tiny: Tiny, tmp_path: Path) -> None:
    names: list[str] = []

    class Watched(Trainer):
        def keep_weights(self, name: str, note: Any) -> None:
            names.append(name)
            super().keep_weights(name, note)

    Watched(tiny(max_epochs=2, keep_every_epochs=1)).fit(root=str(tmp_path))
    assert names == [f"models/mlp_wine_baseline_epoch_{number}" for number in (1, 2)]


def test_a_run_that_stops_early_keeps_its_last_epoch_as_a_milestone(
    tiny: Tiny, tmp_path: Path
) -> None:
    config = tiny(max_epochs=20, keep_every_epochs=4, **stopping(patience=5))
    result = run_with(Scripted(1.0), config, tmp_path)
    assert models(result.run_dir) == [f"mlp_wine_baseline_epoch_{number}" for number in (4, 6)]


def test_no_milestones_are_kept_unless_asked_for(tiny: Tiny, tmp_path: Path) -> None:
    assert not models(Trainer(tiny()).fit(root=str(tmp_path)).run_dir)


def test_the_log_is_written_as_often_as_asked(tiny: Tiny, tmp_path: Path) -> None:
    """Every three of fourteen steps, and at each of two epochs; then the test."""
    config = tiny(log_every_opt_steps=3)
    result = Trainer(config).fit(root=str(tmp_path))
    steps = [line["opt_steps"] for line in lines(result.run_dir)]
    assert steps == [3, 6, 7, 9, 12, 14, 14]


def test_a_written_value_is_the_mean_since_the_last_write(tiny: Tiny, tmp_path: Path) -> None:
    every = Trainer(tiny(log_every_opt_steps=1)).fit(root=str(tmp_path), name="every")
    third = Trainer(tiny(log_every_opt_steps=3)).fit(root=str(tmp_path), name="third")
    one_by_one = history(every.run_dir, "train/loss")
    assert len(one_by_one) == 14
    assert history(third.run_dir, "train/loss")[:3] == pytest.approx(
        [sum(one_by_one[0:3]) / 3, sum(one_by_one[3:6]) / 3, one_by_one[6]]
    )


@pytest.mark.covers("003-D2")
@pytest.mark.parametrize("key", ["stopping_metric", "metric"])
@pytest.mark.parametrize(
    ("metric", "changes"),
    [
        ("validation/epoch_los", {}),
        ("validation/epoch_loss", {"evaluate_every_epochs": 0}),
        ("test/loss", {}),
    ],
)
def test_a_metric_that_the_run_never_writes_is_refused_before_work(
    tiny: Tiny, key: str, metric: str, changes: dict[str, Any]
) -> None:
    """Never repaired, and the message names the right key and the right names."""
    own = {"patience": 3} if key == "stopping_metric" else {"keep": 1}
    own |= {key: metric, key.replace("metric", "mode"): "min"}
    section = {f"evaluation.{name}": value for name, value in own.items()}
    with pytest.raises(ConfigError, match=rf"'evaluation.{key}' is {metric}, which .* never") as e:
        Trainer(tiny(**changes, **section)).fit(runtime=InMemoryRuntime)
    assert "train/epoch_loss" in str(e.value)


def test_a_misspelt_metric_whose_direction_nobody_knows_is_told_with_the_right_one(
    tiny: Tiny,
) -> None:
    told = "'evaluation.metric' is validation/epoch_los: cannot tell .* Did you mean 'validation/epoch_loss'"
    with pytest.raises(ConfigError, match=told):
        tiny(evaluation__metric="validation/epoch_los", evaluation__keep=1)


def test_a_stopped_run_evaluates_no_further_epoch(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(max_epochs=20, **stopping(patience=2))
    result = run_with(Scripted(1.0), config, tmp_path)
    assert len(history(result.run_dir, "validation/epoch_loss")) == 3
    assert len(history(result.run_dir, "test/loss")) == 1
    assert torch.tensor(history(result.run_dir, "test/loss")).isfinite().all()


BEST = {
    "metric": "validation/epoch_loss",
    "mode": "min",
    "score": 2.5,
    "model": "models/best-0000000010",
    "counters": {"epoch": 2},
}
OLD_PARTS = {"best": {"record": BEST}, "early_stopping": {"best": 2.5, "num_bad": 1}}


@pytest.mark.parametrize("kept", [("best",), ("early_stopping",), ("best", "early_stopping")])
def test_what_was_two_parts_once_is_read_by_the_judge(tiny: Tiny, kept: tuple[str, ...]) -> None:
    wanted = {"evaluation.keep": 1} if "best" in kept else {}
    wanted |= stopping() if "early_stopping" in kept else {}
    judge = make_judge(tiny(**wanted))
    state = with_judge({"run": {}, **{name: OLD_PARTS[name] for name in kept}})
    assert set(state) == {"run", "judge"}
    judge.load_state_dict(state["judge"])
    assert judge.best == (BEST if "best" in kept else None)
    if "early_stopping" in kept:
        state_of_score = judge.score_states["early_stopping"]
        assert (state_of_score.peak, state_of_score.num_bad) == (2.5, 1)
    assert with_judge(state) == state


@pytest.mark.parametrize("part", ["best", "early_stopping"])
def test_a_damaged_part_of_those_two_is_named(part: str) -> None:
    for damaged in (None, {}, {"best": 1.0}):
        with pytest.raises(CheckpointError, match=f"the saved state of '{part}' does not fit"):
            with_judge({part: damaged})
