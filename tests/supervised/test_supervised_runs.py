"""Whole small runs: classes, two classes, numbers, images; and one that never changes by a byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus import Trainer
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from tests.supervised.conftest import MLP, QUIET, Tiny, history

FAST = {"optimizer.learning_rate": 0.01}


def data(kind: str) -> dict[str, Any]:
    return {"kind": kind, "validation_fraction": 0.2, "test_fraction": 0.2, "standardise": True}


def test_a_regression_learns_more_than_the_mean(tiny: Tiny, tmp_path: Path) -> None:
    """The targets are standardised, so answering their mean has a loss of about 1."""
    config = tiny(
        data=data("diabetes"),
        model={**MLP, "inputs": 10, "outputs": 1},
        loss="mse",
        max_epochs=20,
        evaluation__patience=5,
        evaluation__metric="validation/epoch_loss",
        evaluation__keep=1,
        **FAST,
    )
    result = Trainer(config).fit(root=str(tmp_path))
    assert history(result.run_dir, "test/loss")[-1] < 0.7
    assert "accuracy" not in (Path(str(result.run_dir)) / "metrics.jsonl").read_text()


@pytest.mark.parametrize("loss", ["l1", "smooth_l1"])
def test_other_losses_of_regression_learn_too(tiny: Tiny, tmp_path: Path, loss: str) -> None:
    model = {**MLP, "inputs": 10, "outputs": 1}
    config = tiny(data=data("diabetes"), model=model, loss=loss, max_epochs=10, **FAST)
    losses = history(Trainer(config).fit(root=str(tmp_path)).run_dir, "train/epoch_loss")
    assert losses[-1] < 0.8 * losses[0]


def test_two_classes_learn_with_one_output(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(
        data=data("breast_cancer"),
        model={**MLP, "inputs": 30, "outputs": 1},
        loss="binary_cross_entropy",
        max_epochs=8,
        **FAST,
    )
    result = Trainer(config).fit(root=str(tmp_path))
    accuracy = history(result.run_dir, "test/accuracy")[-1]
    assert 0.93 < accuracy <= 1.0
    assert len(history(result.run_dir, "train/epoch_accuracy")) == 8


def test_classes_with_one_output_are_refused(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="use binary_cross_entropy"):
        tiny(model={**MLP, "outputs": 1})


def test_the_example_learns_digits(tmp_path: Path) -> None:
    """A tenth of the example's length; whole, it reaches 0.98 for every seed tried."""
    config = ludus.example("supervised").replace(max_epochs=3, ema_decay=None, **QUIET)
    result = Trainer(config).fit(root=str(tmp_path))
    assert history(result.run_dir, "test/accuracy")[-1] > 0.9


@pytest.mark.covers("000-D12")
def test_the_seed_decides_everything_and_seed_0_is_a_seed(tiny: Tiny, tmp_path: Path) -> None:
    """The original ignored seed 0."""
    model = {**MLP, "dropout": 0.3}
    digests = [
        digest(run(tiny(seed=seed, model=model), tmp_path, name=str(number)))
        for number, seed in enumerate((0, 0, 1))
    ]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_what_was_drawn_before_a_run_does_not_matter_to_it(tiny: Tiny, tmp_path: Path) -> None:
    model = {**MLP, "dropout": 0.3}
    torch.manual_seed(123)
    one = digest(run(tiny(model=model), tmp_path, name="one"))
    torch.rand(7)
    assert digest(run(tiny(model=model), tmp_path, name="two")) == one


def run(config: Any, root: Path, *, name: str) -> Trainer:
    trainer = Trainer(config)
    trainer.fit(root=str(root), name=name)
    return trainer


def digest(trainer: Trainer) -> str:
    """Return the hash of every weight, by name."""
    found = hashlib.sha256()
    for name, tensor in sorted(trainer.model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.contiguous().numpy().tobytes())
    for name, tensor in sorted(trainer.weights().items()):
        found.update(name.encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


class TakesNoStep(ludus.Trainer):
    """Overrides train_step and forgets to learn."""

    def train_step(self, batch: object, batch_idx: int) -> None:
        return None


def test_a_train_step_that_takes_no_step_is_told_after_an_epoch(tmp_path: Path) -> None:
    config = ludus.example("supervised", max_epochs=4, **{"settings.display": "none"})
    trainer = TakesNoStep(config)
    trainer.fit(root=str(tmp_path), name="idle")
    told = [json.loads(line) for line in (tmp_path / "idle/events.jsonl").read_text().splitlines()]
    assert [one["reason"] for one in told if one["event"] == "no_steps"] == [
        "a whole epoch took no optimisation step: TakesNoStep.train_step calls neither"
        " self.update.step(...) nor super().train_step(...), and counts no 'opt_steps'"
    ]


def test_a_walk_in_memory_is_judged_stopped_early_and_tested_on_its_best_model() -> None:
    """As one in a directory: nothing is switched off by there being no log on disk."""
    changes = {
        "evaluation.patience": 1,
        "evaluation.min_delta": 100.0,
        "settings.display": "none",
    }  # fmt: skip
    trainer = ludus.Trainer(ludus.example("supervised", max_epochs=9, **changes))
    result = trainer.fit(runtime=InMemoryRuntime)
    assert result.status == "stopped"
    assert "early stopping" in (result.reason or "")
    assert result.best is not None
    assert result.best["metric"] == "validation/epoch_loss"
    assert "test/accuracy" in trainer.run.log.written


def _exchanged_layer(net: nn.Module) -> None:
    net[2] = nn.Linear(16, 3)  # type: ignore[operator]


def _exchanged_data(net: nn.Module) -> None:
    for weight in net.parameters():
        weight.data = weight.data.clamp(-1, 1)


def _loaded(net: nn.Module) -> None:
    net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()}, assign=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_exchanged_layer, "parameter 2.weight was exchanged"),
        (_exchanged_data, "parameter 0.weight was exchanged"),
        (_loaded, "parameter 0.weight was exchanged"),
        (lambda net: net.double().float(), "parameter 0.weight was exchanged"),
        (
            lambda net: net.zero_grad(),
            r"gradient of 0.weight was taken away .*clears gradients itself",
        ),
    ],
)
def test_weights_and_gradients_that_a_hook_cuts_off_are_told_not_left_without_steps(
    change: Any, told: str, tiny: Tiny, tmp_path: Path
) -> None:
    class Cuts:
        def after_step(self, run: ludus.Run) -> None:
            if run.counters["opt_steps"] == 3:
                change(net)

    trainer = Trainer(tiny(model=None, engine="eager", log_every_opt_steps=1))
    net = nn.Sequential(nn.Linear(13, 16), nn.Tanh(), nn.Linear(16, 3))
    trainer.set_model(net)
    trainer.add(Cuts())
    with pytest.raises(LudusError, match=told):
        trainer.fit(root=str(tmp_path))


class Layers(nn.Module):
    """Layers of torch's own that a script may set otherwise in the middle of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(13, 16), nn.BatchNorm1d(16)
        self.drop, self.last = nn.Dropout(0.0), nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(self.norm(torch.relu(self.first(x)))))


def _more_dropout(net: Any) -> None:
    net.drop.p = 0.5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_more_dropout, "p of the layer drop"),
        (lambda net: net.norm.eval(), "training of the layer norm"),
        (
            lambda net: net.first.register_forward_hook(lambda module, given, out: out * 0.5),
            "hooks of the layer first",
        ),
        (lambda net: None, None),
    ],
    ids=["dropout", "eval", "hook", "nothing"],
)
def test_a_setting_of_a_layer_that_a_run_changes_is_said_to_be_inexact(
    change: Any, told: str | None, tiny: Tiny, tmp_path: Path
) -> None:
    class Sets:
        def after_epoch(self, run: ludus.Run) -> None:
            change(net)

    trainer = Trainer(tiny(model=None, engine="eager"))
    net = Layers()
    trainer.set_model(net)
    trainer.add(Sets())
    reasons = trainer.fit(root=str(tmp_path)).inexact_because
    found = [one for one in reasons if "the run has changed" in one]
    assert told in found[0] if told else not found, reasons


class Frozen(nn.Module):
    """Has nothing that learns."""

    def forward(self, x: Any) -> Any:
        return x[:, :3]


class Detached(ludus.Model):
    """Computes a loss from which no gradient comes back."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": super().training_step(batch, batch_idx)["loss"].detach()}


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Frozen(), "the network Frozen has no parameter that learns"),
        (Detached(nn.Linear(13, 3)), "the loss has no gradient: it depends on no parameter"),
    ],
)
def test_what_cannot_learn_is_told_in_a_sentence(
    model: Any, told: str, tiny: Tiny, tmp_path: Path
) -> None:
    trainer = Trainer(tiny(model=None, engine="eager"))
    trainer.set_model(model)
    with pytest.raises(LudusError, match=told):
        trainer.fit(root=str(tmp_path))
