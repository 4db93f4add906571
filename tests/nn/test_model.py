"""Model: the same to build, train, evaluate, save and load, whatever network it wraps."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus import Evaluator, Model
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.model import compute_loss, count_correct
from ludus.nn.models.mlp import MultiLayerPerceptron

CONFIG: dict[str, Any] = {
    "kind": "mlp",
    "inputs": 4,
    "widths": [5],
    "outputs": 3,
    "activation": "tanh",
    "layer_norm": False,
    "dropout": 0.0,
}


@pytest.mark.covers("000-M2")
def test_a_model_is_built_from_a_dict_or_a_typed_config() -> None:
    """Built as Model(model_config)."""
    from_dict, typed = Model(CONFIG), Model(MultiLayerPerceptron.Config(**CONFIG))
    assert isinstance(from_dict.model, MultiLayerPerceptron)
    assert from_dict.architecture == typed.architecture == "mlp"
    assert from_dict.config == typed.config
    assert from_dict(torch.zeros(2, 4)).shape == (2, 3)


def test_a_model_wraps_a_network_of_ones_own() -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    model = Model(network, loss="mse")
    assert model.module is model.model is network
    assert (model.architecture, model.config, model.loss) == ("sequential", None, "mse")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"inputs": 4}, "needs a 'kind', one of: cnn, huggingface, mlp"),
        ({**CONFIG, "kind": "mlpp"}, "Did you mean 'mlp'"),
        ({**CONFIG, "outputs": 0}, "'outputs'"),
        ({**CONFIG, "width": [5]}, "Did you mean 'widths'"),
        ({key: CONFIG[key] for key in CONFIG if key != "dropout"}, "'dropout' is missing"),
    ],
)
def test_a_wrong_model_config_is_told_in_one_sentence(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("[", r"\[")) as caught:
        Model(config)
    assert "\n" not in str(caught.value)


@pytest.mark.covers("000-S1")
def test_saved_weights_load_into_another_model_of_the_same_config(tmp_path: Path) -> None:
    one, two = Model(CONFIG), Model(CONFIG)
    inputs = torch.randn(6, 4)
    assert not torch.equal(one(inputs), two(inputs))
    one.save_model(tmp_path / "weights")
    two.load_model(tmp_path / "weights")
    assert torch.equal(one(inputs), two(inputs))


def test_saving_again_replaces_what_was_there(tmp_path: Path) -> None:
    model = Model(CONFIG)
    model.save_model(tmp_path / "weights")
    with torch.no_grad():
        model.module.get_parameter("layers.0.bias").fill_(7.0)
    model.save_model(str(tmp_path / "weights"))
    other = Model(CONFIG)
    other.load_model(tmp_path / "weights")
    assert bool((other.module.get_parameter("layers.0.bias") == 7.0).all())


def test_weights_of_another_shape_give_one_clear_error(tmp_path: Path) -> None:
    Model({**CONFIG, "widths": [6]}).save_model(tmp_path / "weights")
    with pytest.raises(LudusError, match=r"do not fit this model: .*layers\.0\.weight") as caught:
        Model(CONFIG).load_model(tmp_path / "weights")
    assert "\n" not in str(caught.value)


@pytest.mark.covers("003-D8")
def test_weights_of_another_network_give_one_clear_error(tmp_path: Path) -> None:
    Model({**CONFIG, "widths": []}).save_model(tmp_path / "weights")
    with pytest.raises(LudusError, match=r"do not fit this model: .*layers\.2\.weight") as caught:
        Model(CONFIG).load_model(tmp_path / "weights")
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_there_give_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=r"weights.* cannot be read"):
        Model(CONFIG).load_model(tmp_path / "weights")


def test_weights_that_changed_on_disk_are_refused(tmp_path: Path) -> None:
    Model(CONFIG).save_model(tmp_path / "weights")
    file = tmp_path / "weights" / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(LudusError, match="has changed since it was saved"):
        Model(CONFIG).load_model(tmp_path / "weights")


@pytest.mark.covers("001-D7", "003-D8")
def test_saving_is_not_by_pickle(tmp_path: Path) -> None:
    Model(CONFIG).save_model(tmp_path / "weights")
    file = tmp_path / "weights" / "weights.safetensors"
    note = (tmp_path / "weights" / "model.json").read_text()
    assert hashlib.sha256(file.read_bytes()).hexdigest() in note
    assert file.read_bytes()[8:9] == b"{"


def test_train_and_eval_set_the_mode_of_every_layer() -> None:
    model = Model({**CONFIG, "dropout": 0.5})
    assert model.eval() is model
    assert not any(module.training for module in model.module.modules())
    assert model.train() is model
    assert all(module.training for module in model.module.modules())


@pytest.mark.covers("001-D8")
def test_evaluating_puts_each_layer_back_in_the_mode_it_was_in() -> None:
    model = Model(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)))
    model.module[1].eval()
    with model.evaluating():
        assert not any(module.training for module in model.module.modules())
    assert [module.training for module in model.module] == [True, False, True]
    assert model.module.training


@pytest.mark.covers("000-S1")
def test_a_training_step_returns_the_mean_loss_and_the_right_answers() -> None:
    model = Model({**CONFIG, "widths": []}, loss="cross_entropy")
    model.load_state_dict({"layers.0.weight": torch.eye(3, 4), "layers.0.bias": torch.zeros(3)})
    inputs = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    result = model.training_step((inputs, torch.tensor([0, 2])), 0)
    total = math.log(math.e + 2)
    assert result["loss"].item() == pytest.approx(((total - 1) + total) / 2)
    assert result["correct"].item() == 1
    assert set(model.evaluation_step((inputs, torch.tensor([0, 2])), 0)) == {"loss", "correct"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mse", (0.25 + 4.0) / 2),
        ("l1", (0.5 + 2.0) / 2),
        ("smooth_l1", (0.125 + 1.5) / 2),
        ("binary_cross_entropy", (math.log1p(math.exp(-1.5)) + math.log1p(math.exp(-2.0))) / 2),
    ],
)
def test_losses_by_hand_take_a_column_of_outputs_and_a_row_of_targets(
    kind: Any, expected: float
) -> None:
    outputs = torch.tensor([[1.5], [-2.0]])
    targets = torch.tensor([1.0, 0.0])
    assert compute_loss(kind, outputs, targets).item() == pytest.approx(expected)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_targets_keep_their_precision_in_half_precision(half: torch.dtype) -> None:
    outputs, targets = torch.tensor([[1.0], [2.0]], dtype=half), torch.tensor([1.0001, 70000.0])
    assert compute_loss("l1", outputs, targets).item() == pytest.approx((0.0001 + 69998) / 2)


@pytest.mark.parametrize(
    ("kind", "outputs", "targets", "expected"),
    [
        ("cross_entropy", [[3.0, 1.0], [0.0, 2.0], [5.0, 0.0]], [0, 1, 1], 2.0),
        # Classes given as shares rather than numbers.
        ("cross_entropy", [[3.0, 1.0], [0.0, 2.0]], [[0.9, 0.1], [0.6, 0.4]], 1.0),
        # A class for each of three pixels: 2 of 3, then 3 of 3.
        (
            "cross_entropy",
            [[[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]],
            [[0, 0, 0], [0, 0, 0]],
            2 / 3 + 1,
        ),
        ("binary_cross_entropy", [[1.0], [-1.0], [2.0]], [1, 0, 0], 2.0),
        # A network that squeezes its column away.
        ("binary_cross_entropy", [1.0, -1.0, 2.0], [1, 0, 0], 2.0),
        # Two labels an example, as many as there are examples.
        ("binary_cross_entropy", [[1.0, -1.0], [1.0, 1.0]], [[1, 0], [1, 0]], 1.5),
    ],
)
def test_right_answers_are_counted_by_the_example(
    kind: Any, outputs: list[Any], targets: list[Any], expected: float
) -> None:
    count = count_correct(kind, torch.tensor(outputs), torch.tensor(targets))
    assert count.item() == pytest.approx(expected)


def test_of_no_examples_none_is_right() -> None:
    assert count_correct("cross_entropy", torch.zeros(0, 3), torch.zeros(0).long()).item() == 0


def test_a_model_of_ones_own_loss_overrides_its_steps(tmp_path: Path) -> None:
    class Doubled(Model):
        def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
            inputs, targets = batch
            return {"loss": 2 * (self.module(inputs)[:, 0] - targets).abs().mean()}

    config = ludus.example("supervised").replace(
        data={
            "kind": "wine",
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
            "standardise": True,
        },
        model=None,
        max_epochs=1,
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
        **{"settings.display": "none", "settings.loggers": [], "settings.threads": 1},
    )
    trainer = ludus.Trainer(config)
    trainer.set_model(Doubled(nn.Linear(13, 1)))
    assert trainer.fit(root=str(tmp_path)).status == "finished"
    text = (tmp_path / "digits" / "metrics.jsonl").read_text()
    assert "train/epoch_loss" in text
    # It answers no class, so nobody may claim an accuracy for it.
    assert "accuracy" not in text


def test_weights_are_saved_to_and_loaded_from_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two, three = Model(CONFIG), Model(CONFIG), Model(CONFIG)
    one.save_model("memory://bucket/weights")
    two.load_model("memory://bucket/weights")
    evaluator = Evaluator(score=lambda model: 1.0)
    evaluator.set_model(three)
    evaluator.load_model("memory://bucket/weights")
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name])
        assert torch.equal(tensor, three.state_dict()[name])
    assert list(tmp_path.iterdir()) == []
