"""Row 10 of the faults: numbers that are not finite end the run in order, and spoil nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ludus import Model, Trainer
from ludus.core.errors import Diverged
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.supervised.conftest import Tiny, history, lines, models, wines

BEST = {"evaluation.metric": "train/epoch_loss", "evaluation.keep": 1}
SGD = {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0}
ADAMW = {
    "kind": "adamw",
    "learning_rate": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.01,
}


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


class Poisoned(Trainer):
    """Finds a bad number in one batch of one epoch."""

    bad = math.nan
    at = (1, 2)

    def train_step(self, batch: Any, batch_idx: int) -> Any:
        if (self.epoch, batch_idx) == self.at:
            batch[0][3, 5] = self.bad
        return super().train_step(batch, batch_idx)


def all_tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [tensor for value in values for tensor in all_tensors(value)]


def assert_nothing_is_spoilt(trainer: Trainer, run_dir: Path) -> None:
    """Every weight, moment, mean and buffer is finite: in memory, in the newest checkpoint, as best."""
    told: list[str] = []
    saved = checkpoint.read_newest(LocalStorage(run_dir), damaged=told.append)
    assert saved is not None
    assert not told
    parts = trainer.state_dict()
    for state in (parts, saved.state):
        for name in ("model", "optimizer"):
            tensors = all_tensors(dict(state[name]))
            assert len(tensors) > 1
            assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
        assert all(bool(torch.isfinite(t).all()) for t in all_tensors(dict(state["update"])["ema"]))
    for name in models(run_dir):
        weights, note = read_model(LocalStorage(run_dir), f"models/{name}")
        assert math.isfinite(note["score"])
        assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())
    assert lines(run_dir, "events.jsonl")[-1]["event"] == "failed"
    assert "Diverged" in lines(run_dir, "events.jsonl")[-1]["reason"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_a_bad_number_in_the_data_is_skipped_and_ends_the_run_at_the_next_write(
    tiny: Tiny, tmp_path: Path, bad: float, optimizer: dict[str, Any]
) -> None:
    config = tiny(
        max_epochs=5,
        optimizer=optimizer,
        ema_decay=0.9,
        **BEST,
        log_every_opt_steps=6,
        **{"settings.checkpoint.every_opt_steps": 1},
    )
    trainer = Poisoned(config)
    trainer.bad = bad
    trainer.set_model(normed())
    # The third batch of the second epoch is step 10; the log is next written at step 12.
    with pytest.raises(Diverged, match=r"train/loss became .* by opt_step 12; lower the learning"):
        trainer.fit(root=str(tmp_path))
    assert trainer.run.counters["opt_steps"] == 12
    run_dir = tmp_path / "digits"
    assert_nothing_is_spoilt(trainer, run_dir)
    assert models(run_dir) == ["best", "best-0000000009"]


def test_without_a_log_in_between_the_epoch_tells(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Poisoned(tiny(max_epochs=5))
    with pytest.raises(Diverged, match="by opt_step 14"):
        trainer.fit(root=str(tmp_path))


def test_a_loss_that_is_not_finite_is_never_the_best(tiny: Tiny, tmp_path: Path) -> None:
    class Hopeless(Model):
        def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
            return {"loss": super().training_step(batch, batch_idx)["loss"] - math.inf}

    trainer = Trainer(tiny(**BEST, model=None))
    trainer.set_model(Hopeless(normed()))
    with pytest.raises(Diverged, match="train/loss became -inf"):
        trainer.fit(root=str(tmp_path))
    assert trainer.best() is None
    assert not models(tmp_path / "digits")


@pytest.mark.parametrize(
    ("optimizer", "network"),
    [
        (SGD, normed),
        (ADAMW, normed),
        # However large its weights, its gradient is finite; the weight decay alone overflows.
        (ADAMW, lambda: nn.Sequential(nn.Linear(13, 3), nn.Identity())),
    ],
    ids=["sgd", "adamw", "adamw, linear"],
)
def test_a_learning_rate_of_1e30_ends_the_run_with_finite_weights(
    tiny: Tiny, tmp_path: Path, optimizer: dict[str, Any], network: Callable[[], nn.Module]
) -> None:
    config = tiny(
        max_epochs=5,
        optimizer={**optimizer, "learning_rate": 1e30},
        ema_decay=0.9,
        log_every_opt_steps=10,
        **{"settings.checkpoint.every_opt_steps": 1},
    )
    trainer = Trainer(config)
    trainer.set_model(network())
    with pytest.raises(Diverged, match=r"by opt_step 7;"):
        trainer.fit(root=str(tmp_path))
    assert_nothing_is_spoilt(trainer, tmp_path / "digits")


def test_a_resumed_run_that_had_met_a_bad_number_ends_the_same_way(
    tiny: Tiny, tmp_path: Path
) -> None:
    """What waits in the log survives the resume, and with it the bad loss."""

    class Interrupted(Poisoned):
        def after_step(self) -> None:
            self.run.interrupted = self.run.counters["opt_steps"] == 11

    config = tiny(max_epochs=5, log_every_opt_steps=12)
    assert Interrupted(config).fit(root=str(tmp_path)).status == "interrupted"
    with pytest.raises(Diverged, match="by opt_step 12"):
        Poisoned(config).fit(root=str(tmp_path), resume=True)


def test_float16_overflows_are_normal_until_twenty_come_in_a_row(
    tiny: Tiny, tmp_path: Path
) -> None:
    inputs, _ = wines(40)
    config = tiny(
        data=None,
        model=None,
        loss="mse",
        precision="float16",
        evaluate_every_epochs=0,
        batch_size=2,
        max_grad_norm=1.0,
        log_every_opt_steps=1,
        optimizer=SGD,
    )

    def trainer(target: float) -> Trainer:
        made = Trainer(config, train_loader=TensorDataset(inputs, torch.full((40,), target)))
        torch.manual_seed(0)
        made.set_model(nn.Linear(13, 1))
        return made

    normal = trainer(100.0)
    assert normal.fit(root=str(tmp_path), name="normal").status == "finished"
    assert normal.update.learner.scaling.scale.item() < 2.0**16
    assert normal.update.learner.scaling.num_skipped.item() == 0

    hopeless = trainer(1e10)
    before = {name: tensor.clone() for name, tensor in hopeless.model.state_dict().items()}
    with pytest.raises(Diverged, match="20 steps in a row overflowed in float16; use bfloat16"):
        hopeless.fit(root=str(tmp_path), name="hopeless")
    assert hopeless.run.counters["opt_steps"] == 20
    assert all(t.equal(before[name]) for name, t in hopeless.model.state_dict().items())


def test_float16_goes_on_after_a_resume_with_the_scale_it_had(tiny: Tiny, tmp_path: Path) -> None:
    class Interrupted(Trainer):
        def after_step(self) -> None:
            self.run.interrupted = self.run.counters["opt_steps"] == 4

    inputs, _ = wines(40)
    rows = TensorDataset(inputs, torch.full((40,), 100.0))
    config = tiny(
        data=None,
        model=None,
        loss="mse",
        precision="float16",
        evaluate_every_epochs=0,
        batch_size=2,
    )
    made = []
    for kind, name, resume in (
        (Trainer, "straight", False),
        (Interrupted, "broken", False),
        (Trainer, "broken", True),
    ):
        trainer = kind(config, train_loader=rows)
        torch.manual_seed(0)
        trainer.set_model(nn.Linear(13, 1))
        trainer.fit(root=str(tmp_path), name=name, resume=resume)
        made.append(trainer)
    assert made[1].update.learner.scaling.num_skipped.item() == 4
    straight, resumed = made[0], made[2]
    assert straight.update.learner.scaling.scale.equal(resumed.update.learner.scaling.scale)
    assert straight.flat.vectors[0].equal(resumed.flat.vectors[0])
    assert (tmp_path / "straight" / "metrics.jsonl").read_bytes() == (
        tmp_path / "broken" / "metrics.jsonl"
    ).read_bytes()


def test_bfloat16_trains_a_run(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(precision="bfloat16", max_epochs=15, **{"optimizer.learning_rate": 0.01})
    result = Trainer(config).fit(root=str(tmp_path))
    assert history(result.run_dir, "test/accuracy")[-1] > 0.9
