"""A kept model is measured on other data, encoded as those that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.core.errors import LudusError, RunError
from tests.command_line import MODEL, Ludus, in_process, small_config
from tests.data.files import rows, write_table
from tests.rl.small import small

TABLE_MODEL = {**MODEL, "inputs": 5, "outputs": 2}


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    """The command, called from an empty directory."""
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def train_on(section: dict[str, Any], **changes: Any) -> Any:
    changes = {"model": TABLE_MODEL, "ema_decay": None, **changes}
    trainer: Any = ludus.build_trainer(small_config(data=section, **changes))
    trainer.fit()
    return trainer


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_another_table_is_scaled_by_what_the_training_rows_measured(
    call: Ludus, tmp_path: Path, suffix: str
) -> None:
    own, missing = rows(), {"height": None, "width": None}
    own[3] = {**own[3], **missing}
    options = {"standardise": True, "missing": "mean"}
    trainer = train_on(write_table(tmp_path / "own.csv", own) | options)
    others = [{**row, "height": row["height"] + 3} for row in rows(30)]
    others[5] |= missing
    write_table(tmp_path / f"others.{suffix}", others)
    words = ["--data", f"path=others.{suffix}"] + (
        ["--data", "kind=parquet"] if suffix == "parquet" else []
    )
    found = call("eval", "runs/small", "--model", "last", *words, "--json").json["metrics"]
    # By hand: the means and deviations of the training rows of the run.
    train = trainer.train_data
    raw = ludus.build_trainer(trainer.config.replace(**{"data.standardise": False, "name": "raw"}))
    raw.prepare(max_steps=None)
    measured_ND: Any = raw.train_data._tensors[0]
    filled = {key: float(measured_ND[:, index].mean()) for index, key in enumerate(missing)}
    known = [row for row in own if row["height"] is not None]
    inputs = torch.tensor(
        [
            [row[key] if row[key] is not None else filled[key] for key in missing]
            + [float(row["city"] == city) for city in ("Bonn", "Oslo", "Rome")]
            for row in others
        ]
    )
    assert len(known) == 39
    assert len(train._tensors[0]) == 20
    scaled = (inputs - measured_ND.mean(0)) / measured_ND.std(0)
    classes = torch.tensor([int(row["kind"] == "tall") for row in others])
    with torch.no_grad(), trainer.model.evaluating():
        outputs = trainer.model(scaled)
    loss = torch.nn.functional.cross_entropy(outputs, classes)
    assert found["test/loss"] == pytest.approx(float(loss), rel=1e-4)
    assert found["test/accuracy"] == pytest.approx(
        float((outputs.argmax(1) == classes).float().mean())
    )


def test_the_same_rows_in_another_file_are_measured_alike(call: Ludus, tmp_path: Path) -> None:
    section = write_table(tmp_path / "own.csv") | {"standardise": True}
    trainer = train_on(section)
    write_table(tmp_path / "again.csv")
    found = call("eval", "runs/small", "--model", "last", "--data", "path=again.csv", "--json").json
    whole = [one.data._tensors for one in trainer.evaluators.values()]
    inputs = torch.cat([trainer.train_data._tensors[0], *(pair[0] for pair in whole)])
    targets = torch.cat([trainer.train_data._tensors[1], *(pair[1] for pair in whole)])
    data = torch.utils.data.TensorDataset(inputs, targets)
    here = trainer.evaluate(data)
    assert found["metrics"]["test/loss"] == pytest.approx(here["validation/epoch_loss"], rel=1e-5)


MISTAKES = {
    "an unseen class": (
        {"kind": "round"}, [], "column kind of others.csv holds 'round', which .*own.csv does not"
    ),
    "an unseen category": ({"city": "Lima"}, [], "column city of others.csv holds 'Lima'"),
    "another encoding": ({}, ["standardise=true"], "'data.standardise' says how the examples of the"),
    "no such key": ({}, ["pth=x"], "--data: 'pth' is not a key .* Did you mean 'path'"),
    "another kind that scales": (
        {}, ["kind=wine", "standardise=true"], "would scale these data by their own mean"
    ),
    "another kind that does not fit": (
        {}, ["kind=wine"], "the model cannot be measured on these data"
    ),
    "a kind that lacks keys": ({}, ["kind=tokens"], "'vocabulary_size' is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_data_that_the_network_does_not_know_are_refused(
    call: Ludus, tmp_path: Path, name: str
) -> None:
    import re

    changed, more, told = MISTAKES[name]
    train_on(write_table(tmp_path / "own.csv"), max_epochs=1)
    table = rows(10)
    table[4] = {**table[4], **changed}
    write_table(tmp_path / "others.csv", table)
    words = [word for one in ["path=others.csv", *more] for word in ("--data", one)]
    if more and more[0] in ("kind=wine",):
        words = words[2:]
    refused = call("eval", "runs/small", *words).refusal()
    assert re.search(told, refused, re.DOTALL), refused


def test_pictures_of_another_folder_have_the_classes_of_the_run(
    call: Ludus, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")

    def draw(folder: Path, names: tuple[str, ...]) -> None:
        for shade, name in enumerate(names):
            (folder / name).mkdir(parents=True)
            for index in range(4):
                pixels = np.full((6, 6), 80 * shade + index, np.uint8)
                image.fromarray(pixels).save(folder / name / f"{index}.png")

    draw(tmp_path / "own", ("cat", "dog", "eel"))
    draw(tmp_path / "others", ("dog", "eel"))
    section = {
        "kind": "image_folder", "path": "own", "validation_fraction": 0.25, "test_fraction": 0.0,
        "height": 4, "width": 4, "channels": 1, "resize": None, "random_crop": None,
        "horizontal_flip": 0.0, "mean": [0.5], "std": [0.5], "broken": "refuse",
    }  # fmt: skip
    trainer: Any = ludus.build_trainer(small_config(data=section, model=None))
    trainer.set_model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)))
    trainer.fit()
    data = trainer.datasets.train
    del data
    network = ludus.load("runs/small", "last", network=trainer.model.module)
    from ludus.config.registry import find
    from ludus.config.sections import validate
    from ludus.seeds import generator

    found = find("dataset", "image_folder")
    own = found(validate(found.Config, section, source="own"))
    other = validate(found.Config, {**section, "path": "others"}, source="others")
    pictures: Any = own.others(other, generator(0, "split"))
    assert sorted({int(pictures[index][1]) for index in range(len(pictures))}) == [1, 2]
    assert network(torch.zeros(1, 1, 4, 4)).shape == (1, 3)
    (tmp_path / "others/ant").mkdir()
    with pytest.raises(LudusError, match="has the class ant, of which there is no picture"):
        own.others(other, generator(0, "split"))


def test_a_kept_model_is_measured_by_its_trainer_on_any_loader(call: Ludus) -> None:
    keeps = {"evaluation.metric": "validation/epoch_accuracy", "evaluation.keep": 2}
    trainer: Any = ludus.build_trainer(small_config(**keeps))
    with pytest.raises(LudusError, match="there is nothing to evaluate yet"):
        trainer.evaluate(None, model="best")
    trainer.fit()
    inputs = torch.randn(30, 13)
    data = torch.utils.data.TensorDataset(inputs, torch.randint(3, (30,)))
    now = trainer.evaluate(data)
    assert trainer.evaluate(data, model="last") == now
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    best = trainer.evaluate(torch.utils.data.DataLoader(data, batch_size=7), model="best")
    network = ludus.load("runs/small")
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(network(inputs), data.tensors[1])
    assert best["validation/epoch_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert all(torch.equal(trainer.model.state_dict()[name], one) for name, one in before.items())
    with pytest.raises(RunError, match="no model is kept there"):
        trainer.evaluate(data, model="worst")


def test_a_run_in_episodes_has_no_data_to_change(call: Ludus) -> None:
    ludus.build_trainer(small("dqn")).fit(name="pole")
    told = call("eval", "runs/pole", "--data", "path=x.csv").refusal()
    assert told.startswith("runs/pole was not trained on a data set, so --data does not apply")
