"""What best_model, early stopping and milestones go by: any metric that a run logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.fit.more_metrics import numbers_in
from ludus.testing.trainers import check_kill_anywhere
from tests.supervised.conftest import MLP, Tiny, history, lines


def by(metric: str, mode: str | None = None) -> dict[str, Any]:
    return {
        "evaluation.metric": metric,
        "evaluation.mode": mode,
        "evaluation.keep": 1,
        "evaluation.patience": 1,
    }


class Top(ludus.Model):
    """Measures more than its loss, and returns what is no number as well."""

    is_repeatable = True

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        result = super().training_step(batch, batch_idx)
        outputs = self.module(batch[0]).detach()
        is_close = (outputs.topk(2).indices == batch[1].unsqueeze(1)).any(1)
        return {**result, "top2": is_close.float().mean(), "outputs": outputs, "one": 1}


def test_the_score_of_an_evaluator_decides_on_the_best_model_and_the_end(
    tiny: Tiny, tmp_path: Path
) -> None:
    scores = iter([1.0, 3.0, 2.0, 9.0])
    trainer: Any = ludus.build_trainer(tiny(max_epochs=4, **by("eval/mine", "max")))
    trainer.set_evaluator(ludus.Evaluator(score=lambda model: next(scores), metric="eval/mine"))
    result = trainer.fit(root=str(tmp_path))
    assert result.best is not None
    assert (result.best["metric"], result.best["score"]) == ("eval/mine", 3.0)
    assert result.counters["epoch"] == 3
    assert "eval/mine has not improved" in str(trainer.run.stop_reason)


def test_an_evaluator_does_not_turn_off_what_is_judged_by_the_validation_data(
    tiny: Tiny, tmp_path: Path
) -> None:
    config = tiny(max_epochs=2, **by("validation/epoch_loss"))
    plain: Any = ludus.build_trainer(config).fit(root=str(tmp_path), name="plain")
    trainer: Any = ludus.build_trainer(config)
    trainer.set_evaluator(ludus.Evaluator(score=lambda model: 1.0))
    result = trainer.fit(root=str(tmp_path), name="given")
    assert result.best == plain.best is not None
    assert set(history(result.run_dir, "eval/score")) == {1.0}


def test_an_evaluator_that_would_never_be_asked_is_refused(tiny: Tiny) -> None:
    trainer: Any = ludus.build_trainer(tiny(evaluate_every_epochs=0))
    trainer.set_evaluator(ludus.Evaluator(score=lambda model: 1.0))
    with pytest.raises(
        ConfigError, match="'evaluate_every_epochs' is 0, so it would never be asked"
    ):
        trainer.fit(runtime=InMemoryRuntime)


@pytest.mark.parametrize("engine", ["eager", "tape"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_what_a_training_step_measures_is_logged_over_the_examples_of_an_epoch(
    engine: str, accumulate: int, tiny: Tiny, tmp_path: Path
) -> None:
    seen: list[tuple[float, int]] = []

    class Seeing(Top):
        is_repeatable = True

        def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            result = super().training_step(batch, batch_idx)
            if engine == "eager" and self.module.training:
                seen.append((float(result["top2"]), len(batch[0])))
            return result

    config = tiny(max_epochs=1, engine=engine, accumulate=accumulate, model=None)
    torch.manual_seed(0)
    trainer = ludus.Trainer(config, model=Seeing(MLP))
    result = trainer.fit(root=str(tmp_path))
    (found,) = history(result.run_dir, "train/epoch_top2")
    if engine == "eager":
        assert found == pytest.approx(sum(v * n for v, n in seen) / sum(n for _, n in seen))
    assert 0.3 < found < 1.0
    assert history(result.run_dir, "train/top2")
    assert history(result.run_dir, "train/epoch_one") == [1.0]
    assert history(result.run_dir, "validation/epoch_top2")
    assert not any("outputs" in name for row in lines(result.run_dir) for name in row)


def test_replayed_steps_measure_what_called_ones_do(tiny: Tiny, tmp_path: Path) -> None:
    found = []
    for engine in ("eager", "tape"):
        torch.manual_seed(0)
        config = tiny(max_epochs=2, engine=engine, model=None)
        result = ludus.Trainer(config, model=Top(MLP)).fit(root=str(tmp_path), name=engine)
        found.append(history(result.run_dir, "train/epoch_top2"))
    assert found[0] == found[1]


@pytest.mark.parametrize("metric", ["validation/epoch_top2", "train/epoch_top2", "train/top2"])
def test_a_model_s_own_metric_can_be_watched(metric: str, tiny: Tiny, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = tiny(max_epochs=3, model=None, **by(metric, "max"))
    result = ludus.Trainer(config, model=Top(MLP)).fit(root=str(tmp_path))
    assert result.best is not None
    assert result.best["score"] == max(history(result.run_dir, metric))


def test_a_run_with_metrics_of_its_own_killed_anywhere_ends_as_if_it_had_not_been(
    tiny: Tiny, tmp_path: Path
) -> None:
    def make() -> Any:
        torch.manual_seed(0)
        config = tiny(max_epochs=1, batch_size=32, accumulate=2, model=None)
        return ludus.Trainer(config, model=Top(MLP))

    check_kill_anywhere(make, tmp_path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            by("validation/los", "min"),
            "'evaluation.metric' is validation/los, which this run never writes; it writes train/",
        ),
        (
            {"evaluate_every_epochs": 0, **by("validation/epoch_loss")},
            "'evaluation.metric' is validation/epoch_loss, which this run never writes; it writes train/",
        ),
        (
            {"loss": "mse", "data": {"kind": "diabetes", "validation_fraction": 0.2,
             "test_fraction": 0.2, "standardise": True}, "model": {**MLP, "inputs": 10, "outputs": 1},
             "evaluation.metric": "validation/epoch_accuracy", "evaluation.keep": 1},
            "'evaluation.metric' is validation/epoch_accuracy, which this run never writes",
        ),
    ],
)  # fmt: skip
def test_a_metric_that_no_one_logs_is_refused_before_training(
    changes: Any, told: str, tiny: Tiny
) -> None:
    with pytest.raises(ConfigError, match=told):
        ludus.build_trainer(tiny(**changes)).fit(runtime=InMemoryRuntime)


def test_where_a_script_could_log_it_and_does_not_that_is_told_in_one_sentence(
    tiny: Tiny, tmp_path: Path
) -> None:
    trainer: Any = ludus.build_trainer(tiny(max_epochs=3, **by("validation/epoch_top3", "max")))
    trainer.set_evaluator(ludus.Evaluator(score=lambda model: 1.0))
    result = trainer.fit(root=str(tmp_path))
    told = [
        row for row in lines(result.run_dir, "events.jsonl") if row["event"] == "monitor_missing"
    ]
    assert [row["epoch"] for row in told if "epoch" in row] in ([], [2])
    assert len(told) == 1
    assert "'evaluation.metric' is validation/epoch_top3, which nobody has logged" in str(told)
    assert "eval/score" in str(told)


def test_a_metric_that_a_hook_logs_can_be_watched(tiny: Tiny, tmp_path: Path) -> None:
    class Counts(ludus.Trainer):
        def after_epoch(self) -> None:
            self.logger.log("mine/score", float(self.epoch))

    result = Counts(tiny(max_epochs=3, **by("mine/score"))).fit(root=str(tmp_path))
    assert result.best is not None
    assert result.best["score"] == 2.0
    assert "monitor_missing" not in str(lines(result.run_dir, "events.jsonl"))


def test_a_milestone_says_what_was_logged_of_it(tiny: Tiny, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = tiny(max_epochs=2, model=None, keep_every_epochs=1)
    result = ludus.Trainer(config, model=Top(MLP)).fit(root=str(tmp_path))
    (first,) = Path(str(result.run_dir)).glob("models/*_epoch_1/model.json")
    found = json.loads(first.read_text())["metrics"]
    assert found["validation/epoch_top2"] == history(result.run_dir, "validation/epoch_top2")[0]


def test_a_single_number_of_any_shape_is_a_metric_and_a_table_is_none() -> None:
    given: dict[str, Any] = {"a": torch.ones(1, 1), "b": 2, "c": torch.ones(3), "d": "text"}
    found: dict[str, Tensor] = numbers_in(given)
    assert {name: (float(one), one.ndim) for name, one in found.items()} == {
        "a": (1.0, 0),
        "b": (2.0, 0),
    }
