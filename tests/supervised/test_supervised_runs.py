"""Whole small runs: classes, two classes, numbers, images; and one that never changes by a byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus import Trainer
from ludus.core.errors import ConfigError
from ludus.run.fingerprint import cpu_name
from tests.supervised.conftest import MLP, QUIET, Tiny, history

GOLDEN = Path(__file__).parent.parent / "golden" / "supervised_trace.json"
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
        early_stopping={
            "metric": "validation/epoch_loss",
            "patience": 5,
            "mode": None,
            "min_delta": 0.0,
        },
        best_model={"metric": "validation/epoch_loss", "mode": None},
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


def machine() -> dict[str, str]:
    """Return what the bytes of a run depend on."""
    return {
        "torch": str(torch.__version__),
        "cpu": cpu_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def test_a_refactor_changes_no_byte_of_twenty_steps(tmp_path: Path) -> None:
    """If this fails, training has changed. `python -m tests.supervised.test_supervised_runs` records anew."""
    golden = json.loads(GOLDEN.read_text())
    if golden["machine"] != machine():
        pytest.skip(f"the trace was recorded on {golden['machine']}")
    assert digest(golden_run(tmp_path)) == golden["sha256"]


def golden_run(root: Path) -> Trainer:
    """Train for twenty steps on one thread, with everything that learning has."""
    config = ludus.example("supervised").replace(
        seed=3,
        data={
            "kind": "wine",
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
            "standardise": True,
        },
        model={**MLP, "widths": [8, 8], "dropout": 0.25, "layer_norm": True, "activation": "gelu"},
        batch_size=8,
        drop_last=False,
        max_epochs=9,
        max_steps=20,
        accumulate=2,
        max_grad_norm=0.5,
        optimizer={
            "kind": "adamw",
            "learning_rate": 0.01,
            "beta1": 0.9,
            "beta2": 0.99,
            "eps": 1e-8,
            "weight_decay": 0.01,
        },
        schedule={"kind": "cosine", "warmup_steps": 5, "final": 0.0, "total_steps": None},
        precision="float32",
        compile=False,
        ema_decay=0.9,
        early_stopping=None,
        best_model=None,
        **QUIET,
    )
    return run(config, root, name="golden")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trace = {"machine": machine(), "sha256": digest(golden_run(Path(folder)))}
    GOLDEN.write_text(json.dumps(trace, indent=2) + "\n")
