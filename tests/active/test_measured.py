"""What a round is measured by: the weights that count, on the data that decided nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

import ludus
from ludus.active.asking import Progress
from ludus.active.config import StoppingConfig
from ludus.active.trainers.active import ActiveTrainer
from ludus.core.runtime import InMemoryRuntime
from tests.active.conftest import small_active
from tests.supervised.conftest import lines

FAST = {**ludus.example("active").optimizer.model_dump(), "learning_rate": 0.05}
WORST = {
    "evaluation.metric": "validation/epoch_loss",
    "evaluation.mode": "max",
    "evaluation.keep": 1,
}


def test_the_best_weights_of_a_round_are_tested_and_asked_with_their_running_mean(
    tmp_path: Path,
) -> None:
    """What is kept is the first epoch, so that the mean of the last one is another."""
    trainer: Any = ludus.build_trainer(
        small_active(
            ema_decay=0.9, **WORST, max_epochs=12, max_rounds=1, optimizer=FAST,
            evaluate_every_epochs=1, engine="eager",
        )
    )  # fmt: skip
    result = trainer.fit(root=str(tmp_path), name="mean")
    best = trainer.run.recall_model(result.best["model"])
    for mean, vector in zip(trainer.update.ema, trainer.flat.vectors, strict=True):
        assert torch.equal(mean, vector)
    assert all(torch.equal(one, best[name]) for name, one in trainer.model.state_dict().items())
    expected = trainer.evaluators["test"].evaluate(trainer.model)[1]["test/loss"]
    assert lines(result.run_dir)[-1]["test/loss"] == pytest.approx(expected)


def test_calibration_is_that_of_the_running_mean(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(
        small_active(
            ema_decay=0.9, evaluation__keep=0, max_rounds=1, optimizer=FAST, engine="eager",
            calibration={"bins": 10, "temperature": False},
        )
    )  # fmt: skip
    result = trainer.fit(root=str(tmp_path), name="mean")

    def entropy() -> float:
        outputs = trainer.evaluators["test"].predict(trainer.model)[0].double()
        log_probs = outputs.log_softmax(1)
        return float(-(log_probs.exp() * log_probs).sum(1).mean())

    told = lines(result.run_dir)[-1]["test/entropy"]
    assert told != pytest.approx(entropy(), rel=1e-3)
    with trainer.averaged():
        assert told == pytest.approx(entropy(), rel=1e-5)


def test_the_accuracy_that_ends_a_run_is_that_of_the_validation_data() -> None:
    inputs = torch.randn(60, 13, generator=torch.Generator().manual_seed(0))
    right, wrong = (inputs[:, 0] > 0).long(), (inputs[:, 0] <= 0).long()
    stopping = {
        "max_labels": None,
        "target_accuracy": 0.6,
        "stable_share": None,
        "stable_rounds": 1,
    }

    def rounds(validation: Tensor, test: Tensor) -> int:
        config = small_active(
            data=None, stopping=stopping, calibration=None, evaluation__keep=0, max_epochs=30,
            initial_labels=40, max_rounds=2, optimizer=FAST, evaluate_every_epochs=1,
        )  # fmt: skip
        trainer = ActiveTrainer(
            config,
            train_loader=TensorDataset(inputs, right),
            val_loader=TensorDataset(inputs, validation),
            test_loader=TensorDataset(inputs, test),
        )
        trainer.fit(runtime=InMemoryRuntime)
        return trainer.run.counters["round"]

    assert rounds(right, wrong) == 1
    assert rounds(wrong, right) == 2


def test_predictions_must_be_stable_for_rounds_in_a_row() -> None:
    config = StoppingConfig(
        max_labels=None, target_accuracy=None, stable_share=1.0, stable_rounds=2
    )
    progress = Progress(config, 4)
    same, other = torch.tensor([0, 1, 0, 1]), torch.tensor([1, 1, 0, 1])
    for said, stable in ((same, 0), (same, 1), (other, 0), (other, 1)):
        progress.update(None, said)
        assert progress.num_stable == stable
        assert progress.reason == ""
    progress.update(None, other)
    assert "2 times in a row" in progress.reason


@pytest.mark.covers("003-S2")
def test_how_good_every_candidate_is_before_it_learns_is_logged(tmp_path: Path) -> None:
    model = small_active().model.model_dump()
    candidates = [
        {"name": name, "model": {**model, "widths": [width]}, "weights": None}
        for name, width in (("narrow", 3), ("wide", 9))
    ]
    trainer: Any = ludus.build_trainer(
        small_active(model=None, candidates=candidates, max_rounds=2, engine="eager")
    )
    trainer.prepare(max_steps=None)
    expected = {
        f"initial/{key.removeprefix('test/')}/{name}": value
        for name, one in zip(("narrow", "wide"), trainer.candidates.models, strict=True)
        for key, value in trainer.evaluators["test"].evaluate(one)[1].items()
    }
    assert sorted(expected) == [
        f"initial/{what}/{name}" for what in ("accuracy", "loss") for name in ("narrow", "wide")
    ]
    rows = lines(trainer.fit(root=str(tmp_path), name="two").run_dir)
    found = [{k: v for k, v in row.items() if k.startswith("initial/")} for row in rows]
    assert [one for one in found if one] == [expected]
