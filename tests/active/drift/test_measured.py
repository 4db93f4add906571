"""An active run measures its calibration after each round."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.active.drift.calibration import ece, fit_temperature
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime


def small(**changes: Any) -> Any:
    return ludus.example("active").replace(
        **{"max_rounds": 2, "max_epochs": 3, "queries": 5, "settings.display": "none"}, **changes
    )


@pytest.mark.covers("003-D6", "003-S1")
def test_calibration_is_of_the_test_data_and_its_temperature_of_the_validation_data(
    tmp_path: Path,
) -> None:
    trainer: Any = ludus.build_trainer(small())
    trainer.fit(root=tmp_path)
    lines = (tmp_path / "active" / "metrics.jsonl").read_text().splitlines()
    last = [row for row in map(json.loads, lines) if "test/ece" in row][-1]
    model = trainer.model
    outputs, targets = trainer.evaluators["test"].predict(model)
    temperature = fit_temperature(*trainer.evaluators["validation"].predict(model))
    assert last["test/ece"] == pytest.approx(ece(outputs, targets), abs=1e-9)
    assert last["validation/temperature"] == pytest.approx(temperature, rel=1e-6)
    scaled = ece(outputs.double() / temperature, targets)
    assert last["test/ece_scaled"] == pytest.approx(scaled, abs=1e-6)
    assert last["test/mce"] >= last["test/ece"]
    assert 0 < last["test/entropy"] < 2.4


def test_the_reliability_curve_of_every_round_is_kept(tmp_path: Path) -> None:
    ludus.build_trainer(small(**{"calibration.bins": 5})).fit(root=tmp_path)
    files = sorted((tmp_path / "active").glob("calibration*"))
    assert [file.name for file in files] == ["calibration_0.json", "calibration_1.json"]
    curve = json.loads(files[1].read_text())
    assert [row["to"] for row in curve["bins"]] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert sum(row["examples"] for row in curve["bins"]) == 449
    assert curve["temperature"] > 0
    assert len(curve["scaled_bins"]) == 5


def test_without_calibration_nothing_of_it_is_measured(tmp_path: Path) -> None:
    ludus.build_trainer(small(calibration=None)).fit(root=tmp_path)
    assert "ece" not in (tmp_path / "active" / "metrics.jsonl").read_text()
    assert not list((tmp_path / "active").glob("calibration*"))


def test_without_a_temperature_the_errors_are_told_as_they_are_alone(tmp_path: Path) -> None:
    ludus.build_trainer(small(**{"calibration.temperature": False})).fit(root=tmp_path)
    text = (tmp_path / "active" / "metrics.jsonl").read_text()
    assert "test/ece" in text
    assert "temperature" not in text
    assert "scaled" not in text


def test_calibration_without_what_it_is_measured_on_is_refused_before_work() -> None:
    with pytest.raises(
        ConfigError, match=r"'calibration\.temperature' is fitted on validation data"
    ):
        small(evaluate_every_epochs=0, evaluation__patience=None, evaluation__keep=0)
    with pytest.raises(ConfigError, match="'calibration' is for classes, and the loss is mse"):
        small(loss="mse")
    with pytest.raises(ConfigError, match="measured on test data, and there is none"):
        ludus.build_trainer(small(**{"data.test_fraction": 0.0})).fit(runtime=InMemoryRuntime)


def test_an_evaluator_predicts_what_it_evaluates_without_gradients() -> None:
    trainer: Any = ludus.build_trainer(small())
    trainer.fit(runtime=InMemoryRuntime)
    outputs, targets = trainer.evaluators["test"].predict(trainer.model)
    right = (outputs.argmax(1) == targets).double().mean()
    _, metrics = trainer.evaluators["test"].evaluate(trainer.model)
    assert float(right) == pytest.approx(metrics["test/accuracy"])
    assert not outputs.requires_grad
    assert torch.is_grad_enabled()
