"""Scripts written from the descriptions of trainers, in their own words, run or are told in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.store.storage import Storage
from tests.command_line import small_config
from tests.supervised.conftest import MLP, QUIET, Tiny, history, models, wines
from tests.supervised.test_short_config import COMPLETE, Dataset, block

PARAMS = {"n_query": 5, "n_iter": 2, "strategy": "Entropy", "model_selection_method": None}


@pytest.mark.covers("003-M5")
def test_a_block_is_taken_as_the_file_has_it_under_its_name() -> None:
    data, plain = Dataset(), block(COMPLETE)
    loaders = data.train_dataloader, data.val_dataloader
    whole = ludus.Trainer(ludus.Model(MLP), {"training_config": plain}, *loaders)
    assert whole.config == ludus.Trainer(ludus.Model(MLP), plain, *loaders).config


@pytest.mark.covers("003-S2")
@pytest.mark.parametrize("is_inside", [True, False])
def test_active_params_stand_in_the_block_or_beside_it(is_inside: bool) -> None:
    settings = ludus.example("active").replace(**QUIET).settings.model_dump()
    plain = block(COMPLETE, settings=settings)
    inside = {"training_config": {**plain, "active_params": PARAMS}}
    given = inside if is_inside else {"training_config": plain, "active_params": PARAMS}
    data = Dataset()
    trainer = ludus.ActiveTrainer(
        ludus.Model(MLP), given, data.train_dataloader, data.val_dataloader
    )
    assert (trainer.config.queries, trainer.config.max_rounds) == (5, 2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"training_config": {}}, "training_config lacks with_validation"),
        ({"training_config": {"device": "cpu"}, "device": "cpu"}, "'device' is given outside"),
        ("config.yaml", "training_config is a str; give a mapping with with_validation"),
    ],
)
def test_a_block_that_is_none_is_told(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ludus.Trainer(ludus.Model(MLP), given, Dataset().train_dataloader)


@pytest.mark.covers("003-M3")
def test_checkpoints_are_also_written_to_the_directory_that_the_attribute_names(
    tiny: Tiny, tmp_path: Path
) -> None:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    trainer = ludus.Trainer(tiny(max_epochs=3, keep_every_epochs=2, **best))
    assert trainer.chkpt_dir is None
    trainer.chkpt_dir = tmp_path / "checkpoints"
    result = trainer.fit(root=str(tmp_path / "runs"))
    prefix = "mlp_wine_baseline_"
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [f"{prefix}best", f"{prefix}epoch_2", f"{prefix}epoch_3"]
    for name in (f"{prefix}epoch_2", f"{prefix}epoch_3"):
        found, own = ludus.Model(MLP), ludus.Model(MLP)
        found.load_model(tmp_path / "checkpoints" / name)
        own.load_model(Path(str(result.run_dir)) / "models" / name)
        assert str(found.state_dict()) == str(own.state_dict())
    assert {f"{prefix}epoch_2", f"{prefix}epoch_3"} <= set(models(result.run_dir))


@pytest.mark.covers("003-S1")
def test_an_epoch_trains_validates_logs_keeps_and_stops_in_that_order(
    tiny: Tiny, tmp_path: Path
) -> None:
    said: list[str] = []

    class Told(ludus.Trainer):
        def train_step(self, batch: Any, batch_idx: int) -> Any:
            said.append("train")
            return super().train_step(batch, batch_idx)

        def _validate(self, run: Any) -> Any:
            said.append("validate")
            return {"validation/epoch_loss": 1.0}

        def _keep(self, name: str, weights: Any, note: Any) -> None:
            said.append("keep the best" if "best" in name else "milestone")
            super()._keep(name, weights, note)

        def after_epoch(self) -> None:
            said.append("after_epoch")

    config = tiny(
        max_epochs=9, batch_size=64, keep_every_epochs=1, evaluation__keep=1, evaluation__patience=1,
    )  # fmt: skip
    trainer = Told(config)
    trainer.fit(root=str(tmp_path))
    epoch = ["train", "train", "validate", "after_epoch"]
    assert said == [*epoch, "keep the best", "milestone", *epoch, "milestone"]
    assert "early stopping" in str(trainer.run.stop_reason)


@pytest.mark.covers("000-M1")
def test_a_trainer_evaluates_any_loader_of_data(tiny: Tiny, tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(tiny())
    with pytest.raises(LudusError, match="nothing to evaluate yet: fit makes the model"):
        trainer.evaluate(DataLoader(TensorDataset(*wines(30))))
    result = trainer.fit(root=str(tmp_path))
    inputs, targets = wines(30)
    expected = {"validation/epoch_loss", "validation/epoch_accuracy"}
    for data in (
        TensorDataset(inputs, targets),
        DataLoader(TensorDataset(inputs, targets), batch_size=7),
        lambda: DataLoader(TensorDataset(inputs, targets), batch_size=30),
    ):
        found = trainer.evaluate(data)
        assert set(found) == expected
        right = (trainer.model.eval()(inputs).argmax(1) == targets).double().mean()
        assert found["validation/epoch_accuracy"] == pytest.approx(float(right))
    assert trainer.evaluate()["validation/epoch_loss"] == pytest.approx(
        history(result.run_dir, "validation/epoch_loss")[-1]
    )
    with pytest.raises(LudusError, match=r"Dataset"):
        trainer.evaluate(7)


@pytest.mark.covers("000-M1", "000-S10")
def test_an_async_evaluator_has_the_methods_of_an_evaluator(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny()
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(tmp_path), name="kept")
    told: list[str] = []

    class Mine(ludus.AsyncEvaluator):
        def before_eval(self) -> None:
            told.append("before")

        def after_eval(self, outcome: Any) -> None:
            told.append(f"after {outcome[0]:.4f}")

    here, async_evaluator = ludus.Evaluator(config), Mine(config)
    names = {name for name in dir(here) if not name.startswith("_")} - {"scorer"}
    assert names <= set(dir(async_evaluator))
    logger = ludus.Logger({"backends": []})
    async_evaluator.set_logger(logger)
    with pytest.raises(LudusError, match="call set_model"):
        async_evaluator.run_eval()
    async_evaluator.set_model(trainer.model)
    try:
        score, metrics = async_evaluator.run_eval()
    finally:
        async_evaluator.close()
    assert (score, metrics) == here.evaluate(trainer.model)
    assert told == ["before", f"after {score:.4f}"]
    assert logger.has_news


@pytest.mark.covers("000-M4")
def test_the_name_of_a_run_is_no_state_and_that_is_told_before_any_work(
    tiny: Tiny, tmp_path: Path
) -> None:
    trainer: Any = ludus.build_trainer(tiny())
    with pytest.raises(
        ConfigError, match=r"trainer_state is 'runs/x'; give what trainer.state_dict"
    ):
        trainer.fit(trainer_state="runs/x", root=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.covers("000-M1", "000-S14")
def test_a_storage_is_made_at_a_place_and_holds_what_is_written(tmp_path: Path) -> None:
    storage = ludus.Storage(str(tmp_path / "a" / "new"))  # type: ignore[misc, abstract]
    assert isinstance(storage, Storage)
    storage.write("notes/one.txt", b"mine")
    assert storage.read("notes/one.txt") == b"mine"
    assert ludus.open_storage(tmp_path / "a" / "new").names("notes") == ["one.txt"]
    storage.remove("notes/one.txt")
    assert not storage.exists("notes/one.txt")


def test_a_storage_that_was_only_opened_says_how_it_is_made(tmp_path: Path) -> None:
    opened = ludus.open_storage(tmp_path / "new")
    for name in ("one.txt", "notes/one.txt"):
        with pytest.raises(
            LudusError, match=r"new is not there; ludus.Storage\('.*new'\) makes it"
        ):
            opened.write(name, b"mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [(), (None,), ({"type": "local"},), ("",)])
def test_a_storage_of_no_place_is_told(place: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match="give it a place: a directory, or a URL"):
        ludus.Storage(*place)  # type: ignore[misc, abstract]


def test_a_storage_of_one_s_own_is_made_as_it_is() -> None:
    class Mine(Storage):
        def __init__(self, place: str) -> None:
            self.place_of = place

    found: Any = Mine("here")  # type: ignore[abstract]
    assert (type(found), found.place_of) == (Mine, "here")


def test_keys_are_read_by_the_names_of_the_descriptions(tiny: Tiny) -> None:
    assert tiny(max_opt_steps=9)["num_train_steps"] == 9
    with pytest.raises(ConfigError, match="'evaluate_every_rounds' is not a key of this config"):
        tiny()["evaluate_every_rounds"]


def test_the_batch_size_of_a_given_loader_is_the_one_that_the_run_records(tmp_path: Path) -> None:
    data = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
    config = small_config(data=None, model=None, batch_size=64, max_epochs=1)

    def trained(max_epochs: int) -> ludus.Result:
        loader = DataLoader(data, 10, shuffle=True)
        longer = config.replace(max_epochs=max_epochs)
        trainer = ludus.Trainer(longer, train_loader=loader, val_loader=data)
        torch.manual_seed(0)
        trainer.set_model(torch.nn.Linear(4, 2))
        return trainer.fit(root=str(tmp_path), name="mine", resume=True)

    assert trained(1).counters["opt_steps"] == 4
    note = json.loads((tmp_path / "mine/run.json").read_text())
    assert note["config"]["batch_size"] == 10
    assert (
        "'batch_size' is 10, that of the given DataLoader"
        in (tmp_path / "mine/events.jsonl").read_text()
    )
    assert trained(2).counters["opt_steps"] == 8
    assert "batch_size: 10\n" in (tmp_path / "mine/config.yaml").read_text()
