"""An ActiveTrainer made of models, a short training_config with active_params, and loaders."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import ludus
from ludus import ActiveModel, ActiveTrainer, BaseTrainer, Model
from ludus.config import strict_yaml
from ludus.core.errors import ConfigError
from tests.supervised.conftest import MLP, QUIET, wines

BLOCK = """
training_config:
  with_validation: true
  results_dir: "./results"
  experiment: EfficientTraining
  max_epochs: 3
  device: cuda
  early_stopping: true
  stopping_metric: validation/epoch_loss
  patience: 10
  active_params:
    n_query: 5
    n_iter: 3
    strategy: Entropy
    model_selection_method: LogME
    state_estimation_method: ECE
    state_estimation_host: edge
    chkpt_dir: null
    starting_chkpt: null
"""


def train_loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*wines(60)), batch_size=20, shuffle=True)


def val_loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*wines(25)), batch_size=25)


def make(model: Any = None, params: dict[str, Any] | None = None, **changes: Any) -> ActiveTrainer:
    """Return the trainer of the documented block; this machine may have no GPU."""
    section: dict[str, Any] = strict_yaml.parse(BLOCK, source="a script")["training_config"]
    settings = ludus.example("active").replace(**QUIET).settings.model_dump()
    section |= {"device": "cpu", "settings": settings} | changes
    if isinstance(section["active_params"], dict):
        section["active_params"] |= params or {}
    model = Model(MLP) if model is None else model
    return ActiveTrainer(model, section, train_loader, val_loader)


@pytest.mark.covers("003-S2", "003-M4", "003-M1")
def test_the_documented_block_trains_one_model_or_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert issubclass(ActiveTrainer, BaseTrainer)
    assert ActiveModel is Model
    for name, given in (("a", Model(MLP)), ("b", [Model(MLP), Model({**MLP, "widths": [4]})])):
        trainer = make(given, results_dir=str(tmp_path), experiment=name)
        trainer.fit()
        assert trainer.pool.rounds.tolist() == [0] * 5 + [1] * 5 + [2] * 5
        assert trainer.config.strategy.kind == "entropy"  # type: ignore[attr-defined]
        assert (trainer.config.selection, trainer.config.round_start) == ("logme", "warm")
        assert trainer.config.evaluation.patience == 10
        assert len(trainer.candidates.scores) == len(trainer.candidates.models)
    assert len(list(tmp_path.iterdir())) == 2
    told = capsys.readouterr().err
    assert "state estimation decides nothing" in told
    assert "  round_start: warm" in told
    assert "  initial_labels: 5" in told
    assert "  queries:" not in told


def test_without_a_selection_the_strategy_chooses_from_the_start() -> None:
    config = make(params={"model_selection_method": None, "strategy": "margin_sampling"}).config
    assert (config.initial_labels, config.selection) == (0, None)
    assert config.strategy.kind == "margin"  # type: ignore[attr-defined]
    assert (config.queries, config.max_rounds) == (5, 3)


@pytest.mark.parametrize("name", ["Uniform", "UNCERTAINTY", "EntropySampling", "margin"])
def test_strategies_go_by_their_names_in_any_spelling(name: str) -> None:
    kind = make(params={"strategy": name}).config.strategy.kind  # type: ignore[attr-defined]
    assert kind == name.lower().removesuffix("sampling")
    section = {"kind": "margin", "shortlist": 3}
    assert make(params={"strategy": section}).config.strategy.shortlist == 3  # type: ignore[attr-defined]


def test_any_key_of_the_complete_config_may_be_given() -> None:
    config = make(initial_labels=9, round_start="cold", class_weights=[1.0, 2.0, 1.0]).config
    assert (config.initial_labels, config.round_start) == (9, "cold")
    assert config.class_weights == [1.0, 2.0, 1.0]


def test_each_model_begins_from_the_checkpoint_that_is_named_for_it(tmp_path: Path) -> None:
    saved = [Model(MLP), Model(MLP)]
    for place, model in enumerate(saved):
        model.save_model(tmp_path / f"m{place}")
    given = [Model(MLP), Model(MLP)]
    make(given, {"chkpt_dir": str(tmp_path), "starting_chkpt": ["m0", "m1"]})
    for one, other in zip(saved, given, strict=True):
        pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    single = Model(MLP)
    make(single, {"chkpt_dir": str(tmp_path), "starting_chkpt": "m1"})
    assert torch.equal(
        next(iter(single.state_dict().values())), next(iter(saved[1].state_dict().values()))
    )


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"n_querry": 1}, "unknown key 'n_querry'.*n_query"),
        ({"strategy": "entropi"}, "active_params.strategy is 'entropi'.*entropy"),
        (
            {"model_selection_method": "LogMe2"},
            "model_selection_method is 'LogMe2'; it can be leep",
        ),
        ({"n_query": 0}, "queries"),
        ({"n_iter": "many"}, "max_rounds"),
        ({"starting_chkpt": "model.pt"}, "could run anything"),
        ({"starting_chkpt": "nowhere"}, "starting_chkpt: "),
        ({"starting_chkpt": ["a", "b"]}, "names 2, and there are 1 models"),
        ({"starting_chkpt": 3}, "starting_chkpt is 3"),
    ],
)
def test_a_wrong_value_is_told(params: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make(params=params)


def test_active_params_are_a_block() -> None:
    with pytest.raises(ConfigError, match="active_params is 3; give a block of n_query"):
        make(active_params=3)
