"""A Trainer made of a model, a short training_config, and loaders."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ludus
from ludus import BaseTrainer, Model, Trainer
from ludus.config import strict_yaml
from ludus.config.base import key_paths
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from tests.supervised.conftest import MLP, QUIET, history, models, wines

REQUIRED = """
training_config:
  with_validation: true
  results_dir: "./results"
  experiment: EfficientTraining
  max_epochs: 1000
  device: cuda
"""
COMPLETE = """
training_config:
  with_validation: true
  results_dir: "./results"
  experiment: EfficientTraining
  max_epochs: 1000
  device: cuda
  early_stopping: true
  stopping_metric: validation/epoch_loss
  patience: 10
  save_best: true
  saving_metric: validation/epoch_loss
  use_milestones: true
  log_interval: 10
"""


class Dataset:
    """The seed's data set: it creates its loaders when they are asked for."""

    def __init__(self) -> None:
        self.rows = TensorDataset(*wines(60))

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.rows, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(TensorDataset(*wines(25)), batch_size=25)


def block(text: str, **changes: Any) -> dict[str, Any]:
    """Return the documented YAML block; this machine may have no GPU."""
    section: dict[str, Any] = strict_yaml.parse(text, source="a script")["training_config"]
    settings = ludus.example("supervised").replace(**QUIET).settings.model_dump()
    return section | {"device": "cpu", "settings": settings} | changes


def make(config: dict[str, Any], model: Any = None) -> Trainer:
    dataset = Dataset()
    model = Model(MLP) if model is None else model
    return Trainer(model, config, dataset.train_dataloader, dataset.val_dataloader)


@pytest.mark.covers("003-M1")
def test_trainer_extends_base_trainer() -> None:
    """BaseTrainer holds the loop; Trainer extends it."""
    assert issubclass(Trainer, BaseTrainer)


@pytest.mark.covers("003-M1", "003-M2", "003-M3", "003-M5", "003-M6")
def test_the_documented_block_trains_stops_early_and_keeps_its_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the block as docs/supervised.md writes it."""
    monkeypatch.chdir(tmp_path)
    optimizer = {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.9, "nesterov": False}
    # A rate this high makes the validation loss rise again within the patience of the test.
    config = block(COMPLETE, optimizer={**optimizer, "weight_decay": 0.0}, ema_decay=None)
    result = make(config).fit()
    assert result.run_dir == "results/EfficientTraining"
    assert result.status == "stopped"
    losses = history(result.run_dir, "validation/epoch_loss")
    assert result.best is not None
    assert result.best["score"] == min(losses)
    best_epoch = losses.index(min(losses)) + 1
    assert result.best["counters"]["epoch"] == best_epoch
    assert result.counters["epoch"] == best_epoch + 10 == len(losses)
    last = result.counters["epoch"]
    milestones = sorted({*range(10, last + 1, 10), last})
    names = [f"mlp_dataset_efficienttraining_epoch_{number}" for number in milestones]
    assert set(names) <= set(models(result.run_dir))
    assert len(history(result.run_dir, "train/epoch_accuracy")) == last


@pytest.mark.covers("003-M1")
def test_the_documented_block_logs_to_tensorboard_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = block(REQUIRED, max_epochs=2)
    del config["settings"]
    make(config).fit()
    (events,) = (tmp_path / "results").rglob("events.out.tfevents*")
    drawn = EventAccumulator(str(events)).Reload()
    epochs = [len(drawn.Scalars(f"{role}/epoch_loss")) for role in ("train", "validation")]
    assert epochs == [2, 2]


@pytest.mark.covers("003-M1")
def test_a_trainer_evaluates_its_model_with_test_data(tmp_path: Path) -> None:
    dataset, held_out = Dataset(), TensorDataset(*wines(30))
    for kind in (BaseTrainer, Trainer):
        trainer = kind(
            Model(MLP), block(REQUIRED, max_epochs=1, results_dir=str(tmp_path / kind.__name__)),
            dataset.train_dataloader, dataset.val_dataloader, test_loader=held_out,
        )  # fmt: skip
        result = trainer.fit()
        trainer.model.eval()
        inputs, targets = held_out.tensors
        is_right = trainer.model(inputs).argmax(1) == targets
        assert history(result.run_dir, "test/accuracy") == [float(is_right.double().mean())]


def test_every_key_that_was_added_is_printed_and_todays_name_of_every_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = {key: value for key, value in block(COMPLETE).items() if key != "settings"}
    trainer = make(config | {"batch_size": 20})
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == "training_config was completed with:"
    shown = dict(line.strip().split(": ", 1) for line in printed[1:] if line.startswith("  "))
    assert [line for line in printed[1:] if not line.startswith("  ")] == [
        f"training_config: '{key}' is called '{now}' now: {value}"
        for key, now, value in (
            ("with_validation", "evaluate_every_epochs", 1),
            ("early_stopping", "evaluation.patience", 10),
            ("patience", "evaluation.patience", 10),
            ("stopping_metric", "evaluation.metric", "validation/epoch_loss"),
            ("save_best", "evaluation.keep", 1),
            ("saving_metric", "evaluation.metric", "validation/epoch_loss"),
            ("use_milestones", "keep_every_epochs", 10),
            ("log_interval", "keep_every_epochs", 10),
        )
    ]
    assert shown["optimizer.learning_rate"] == str(trainer.config.optimizer.learning_rate)
    assert shown["seed"] == "0"
    data = trainer.config.model_dump()
    given = {"evaluate_every_epochs", "experiment", "max_epochs", "batch_size", "name"}
    told = {"settings.device", *(f"evaluation.{key}" for key in ("patience", "metric", "keep"))}
    given |= {"keep_every_epochs"}
    leaves = {
        path
        for path in key_paths(data)
        if not any(p.startswith(f"{path}.") for p in key_paths(data))
    }
    added = {path for path in leaves if path.split(".")[0] not in given} - told
    assert set(shown) == added


@pytest.mark.covers("003-M5")
def test_missing_required_keys_are_named() -> None:
    """The five required keys; all that lack are named at once."""
    with pytest.raises(ConfigError, match="training_config lacks results_dir, max_epochs, device"):
        make({"with_validation": True, "experiment": "x"})
    for key in ("with_validation", "results_dir", "experiment", "max_epochs", "device"):
        short = {name: value for name, value in block(REQUIRED).items() if name != key}
        with pytest.raises(ConfigError, match=f"training_config lacks {key}"):
            make(short)


@pytest.mark.covers("003-M5")
def test_the_required_keys_are_enough_and_turn_nothing_else_on(tmp_path: Path) -> None:
    config = block(REQUIRED, results_dir=str(tmp_path), max_epochs=2)
    trainer = make(config)
    assert trainer.config.evaluation.patience is None
    assert trainer.config.evaluation.keep == 0
    assert trainer.config.keep_every_epochs == 0
    result = trainer.fit()
    assert result.counters["epoch"] == 2
    assert models(result.run_dir) == []


@pytest.mark.covers("003-D1")
def test_log_interval_is_honoured(tmp_path: Path) -> None:
    """The original overwrote it with 10."""
    config = block(COMPLETE, results_dir=str(tmp_path), max_epochs=5, log_interval=2)
    config |= {"early_stopping": False, "save_best": False}
    result = make(config).fit()
    prefix = "mlp_dataset_efficienttraining_epoch_"
    assert models(result.run_dir) == [f"{prefix}{number}" for number in (2, 4, 5)]


@pytest.mark.covers("003-D2")
def test_patience_has_the_documented_default_of_five() -> None:
    short = {key: value for key, value in block(COMPLETE).items() if key != "patience"}
    assert make(short).config.evaluation.patience == 5


@pytest.mark.covers("003-D2")
@pytest.mark.parametrize(
    ("key", "now"), [("stopping_metric", "stopping_metric"), ("saving_metric", "metric")]
)
def test_an_invalid_metric_is_refused_not_repaired(key: str, now: str) -> None:
    """An invalid saving_metric must not repair stopping_metric instead."""
    with pytest.raises(ConfigError, match=rf"'evaluation.{now}' is validation/f1, which this run"):
        make(block(COMPLETE, **{key: "validation/f1"})).fit(runtime=InMemoryRuntime)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pacience": 3}, "unknown key 'pacience'. Did you mean 'patience'"),
        ({"early_stopping": "yes"}, r"'early_stopping' must be true or false \(found 'yes'\)"),
        ({"with_validation": 2}, r"'with_validation' must be true or false \(found 2\)"),
        ({"save_best": 1}, r"'save_best' must be true or false \(found 1\)"),
        ({"patience": 0}, "evaluation.patience"),
        ({"log_interval": 2.5}, "keep_every_epochs"),
        ({"max_epochs": "many"}, "max_epochs"),
        ({"best_model": None}, "both 'save_best' and 'best_model'; give one"),
        ({"evaluation": {}}, "both 'early_stopping' and 'evaluation'; give one"),
        ({"evaluate_every_epochs": 2}, "both 'with_validation' and 'evaluate_every_epochs'; give"),
    ],
)
def test_a_wrong_value_is_told(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make(block(COMPLETE, **changes))


@pytest.mark.parametrize(
    ("key", "value", "switch"),
    [
        ("patience", 3, "early_stopping"),
        ("saving_metric", "train/epoch_loss", "save_best"),
        ("log_interval", 3, "use_milestones"),
    ],
)
def test_a_setting_that_would_be_ignored_is_an_error(key: str, value: Any, switch: str) -> None:
    with pytest.raises(ConfigError, match=f"'{key}', which means nothing without '{switch}'"):
        make(block(REQUIRED, **{key: value}))
    assert make(block(REQUIRED, **{key: value, switch: False})) is not None


@pytest.mark.covers("000-D12")
def test_any_key_of_the_complete_config_may_be_given() -> None:
    evaluation = {
        "metric": "train/epoch_loss", "mode": "min", "keep": 2, "patience": 2, "min_delta": 0.1,
        "stopping_metric": None, "stopping_mode": None, "target": 0.5,
    }  # fmt: skip
    config = block(REQUIRED, seed=7, evaluation=evaluation, keep_every_epochs=3)
    del config["with_validation"]
    config["evaluate_every_epochs"] = 2
    before = copy.deepcopy(config)
    made = make(config).config
    assert made.seed == 7
    assert made.evaluation.model_dump() == evaluation
    assert (made.evaluate_every_epochs, made.keep_every_epochs) == (2, 3)
    # What the user gave is never changed.
    assert config == before


def test_the_sections_of_version_5_may_be_given() -> None:
    stopping = {"metric": "train/epoch_loss", "patience": 2, "mode": "min", "min_delta": 0.1}
    best = {"metric": "validation/epoch_loss", "mode": None, "keep": 3}
    made = make(block(REQUIRED, early_stopping=stopping, best_model=best)).config.evaluation
    assert (made.metric, made.mode, made.keep) == ("validation/epoch_loss", None, 3)
    assert (made.stopping_metric, made.stopping_mode) == ("train/epoch_loss", "min")
    assert (made.patience, made.min_delta) == (2, 0.1)
    with pytest.raises(ConfigError, match="'best_model' was null or a section with metric, mode"):
        make(block(REQUIRED, best_model={"metric": "train/epoch_loss"}))


def test_without_validation_the_training_loss_is_watched(tmp_path: Path) -> None:
    short = block(COMPLETE, with_validation=False, results_dir=str(tmp_path))
    del short["stopping_metric"], short["saving_metric"]
    trainer = Trainer(Model(MLP), short, Dataset().train_dataloader)
    assert trainer.config.evaluation.metric == "train/epoch_loss"
    result = trainer.fit(max_steps=6)
    assert history(result.run_dir, "validation/epoch_loss") == []
    assert result.best is not None


@pytest.mark.covers("003-M2")
def test_any_loader_is_accepted_and_validation_is_optional(tmp_path: Path) -> None:
    """Callables, loaders or data sets; a torch network or a Model."""
    rows = TensorDataset(*wines(40))
    network = nn.Linear(13, 3)
    for number, loader in enumerate((rows, DataLoader(rows, batch_size=10), lambda: rows)):
        short = block(REQUIRED, results_dir=str(tmp_path), max_epochs=1, with_validation=False)
        short["experiment"] = f"run{number}"
        result = Trainer(network, short, loader).fit()
        assert result.counters["examples"] == 40


def test_the_arguments_have_their_documented_names(tmp_path: Path) -> None:
    dataset = Dataset()
    trainer = Trainer(
        model=nn.Linear(13, 3),
        training_config=block(REQUIRED, results_dir=str(tmp_path), max_epochs=1),
        train_loader=dataset.train_dataloader,
        val_loader=dataset.val_dataloader,
    )
    assert trainer.fit().counters["epoch"] == 1


def test_a_model_brings_its_own_loss(tmp_path: Path) -> None:
    inputs, _ = wines(30)
    rows = TensorDataset(inputs, inputs.sum(1))
    short = block(REQUIRED, results_dir=str(tmp_path), max_epochs=1)
    result = Trainer(Model(nn.Linear(13, 1), loss="mse"), short, rows, rows).fit()
    assert torch.tensor(history(result.run_dir, "validation/epoch_loss")).isfinite().all()
    assert history(result.run_dir, "validation/epoch_accuracy") == []


def test_what_the_short_form_needs_besides_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="needs a train_loader"):
        Trainer(Model(MLP), block(REQUIRED))
    with pytest.raises(ConfigError, match="needs a model"):
        Trainer(training_config=block(REQUIRED), train_loader=Dataset().train_dataloader)


@pytest.mark.covers("003-D7")
def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    short = block(REQUIRED, results_dir=str(tmp_path)) | {"device": "cuda"}
    with pytest.raises(ConfigError, match="torch sees no CUDA device here"):
        make(short).fit()
    assert not list(tmp_path.iterdir())
