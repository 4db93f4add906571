"""A supervised run by the tape is the eager run to the bit: weights, moments, mean weights, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus import Model, Trainer
from ludus.core.errors import LudusError
from ludus.nn.engines.batches import OnBatches
from ludus.nn.engines.choice import Subject, choose_engine
from ludus.store.checkpoint import digest_of
from ludus.testing.trainers import check_kill_anywhere
from tests.contracts.test_engines import ADAM, CPU
from tests.fit.made import model_update
from tests.supervised.conftest import QUIET, WINE

# The learning rate is another one at every step.
FALLING = {"kind": "cosine", "warmup_steps": 2, "final": 0.0, "total_steps": None}
MLP = {
    "kind": "mlp", "inputs": 13, "widths": [16], "outputs": 3, "activation": "relu",
    "layer_norm": True, "dropout": 0.2,
}  # fmt: skip


def config(**changes: Any) -> Any:
    given: dict[str, Any] = {"data": WINE, "model": MLP, "batch_size": 16, "max_epochs": 3}
    given |= {"learning_rate_schedule": FALLING, "log_every_opt_steps": 2}
    return ludus.example("supervised").replace(**{**given, **QUIET, **changes})


def batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))


def ending(trainer: Trainer, root: Path, name: str) -> tuple[str, bytes]:
    trainer.fit(root=str(root), name=name)
    parts = {key: dict(part.state_dict()) for key, part in trainer.parts().items()}
    state = {key: parts[key] for key in ("model", "optimizer", "update")}
    return digest_of(state), (root / name / "metrics.jsonl").read_bytes()


def compared(root: Path, make: Any = Trainer, network: Any = None, **changes: Any) -> Any:
    ends = {}
    for engine in ("eager", "tape"):
        trainer = make(config(engine=engine, **changes))
        if network is not None:
            trainer.set_model(network())
        ends[engine] = ending(trainer, root, engine)
    assert ends["tape"] == ends["eager"]
    return trainer.update


def replays(update: Any) -> list[int]:
    """Return how many tapes there are of each structure of a batch."""
    return [len(f.update._tapes) for f in update.execute._functions.values()]


CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "gathered, clipped, averaged": {"accumulate": 3, "max_grad_norm": 0.1, "ema_decay": 0.9},
    "in bfloat16": {"precision": "bfloat16"},
    "in float16": {"precision": "float16"},
    # Rows begin anywhere in memory, and the last batch is short.
    "batches of five": {"batch_size": 5, "max_epochs": 2},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_taped_run_is_an_eager_one_to_the_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    update = compared(tmp_path, **changes)
    assert isinstance(update.execute, OnBatches)
    assert sum(replays(update)) >= 1


def test_running_statistics_of_batch_norm_are_taped_too(tmp_path: Path) -> None:
    update = compared(tmp_path, network=batch_norm, model=None, ema_decay=0.9)
    assert sum(replays(update)) >= 1


class Easing(Trainer):
    """Lets dropout go in the end."""

    def before_epoch(self) -> None:
        for part in self.model.module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.2 / (self.epoch + 1)


def test_a_script_may_change_layers_as_it_trains(tmp_path: Path) -> None:
    update = compared(tmp_path, make=Easing)
    assert sum(replays(update)) > 0


SEEN: list[int] = []
"""The index of each batch that a model of one's own was given."""


class Picky(Model):
    """A step of one's own, which is not known to be the same each time."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        SEEN.append(batch_idx)
        result = super().training_step(batch, batch_idx)
        return {**result, "loss": result["loss"] * (1 + batch_idx % 2)}


def test_a_model_of_ones_own_is_called_every_time_and_that_is_told(tmp_path: Path) -> None:
    trainer = Trainer(config(engine="auto", model=None, loss="cross_entropy"))
    trainer.set_model(Picky(batch_norm(), loss="cross_entropy"))
    trainer.fit(root=str(tmp_path), name="own")
    assert trainer.config.engine == "eager"
    assert set(SEEN) == set(range(7))
    assert "engine: eager" in (tmp_path / "own" / "config.yaml").read_text()
    events = (tmp_path / "own" / "events.jsonl").read_text()
    assert "the update is not taped: Picky is neither torch's nor ludus's" in events


class Vouched(Picky):
    """Says that it is the same each time, and counts."""

    is_repeatable = True
    num_asked = 0

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        self.num_asked += 1
        return super().training_step(batch, batch_idx)


def test_a_model_that_says_it_is_repeatable_and_counts_is_found_out(tmp_path: Path) -> None:
    trainer = Trainer(config(engine="tape", model=None, loss="cross_entropy"))
    trainer.set_model(Vouched(batch_norm(), loss="cross_entropy"))
    with pytest.raises(LudusError, match="Vouched changes num_asked as it runs, yet says"):
        trainer.fit(root=str(tmp_path), name="own")


def test_a_taped_run_killed_anywhere_ends_with_the_same_bytes(tmp_path: Path) -> None:
    changes = {"settings.checkpoint.every_opt_steps": 3, "accumulate": 2, "ema_decay": 0.9}
    check_kill_anywhere(lambda: Trainer(config(engine="tape", **changes)), tmp_path, max_kills=2)


def images() -> nn.Module:
    first = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))


@pytest.mark.parametrize(
    ("network", "shape"), [(images, (6, 3, 8, 8)), (attention, (6, 5, 8))], ids=["images", "words"]
)
def test_convolutions_and_attention_are_taped_to_the_bit(
    network: Any, shape: tuple[int, ...]
) -> None:
    ends = []
    for wanted in ("eager", "tape"):
        torch.manual_seed(0)
        model = Model(network(), loss="cross_entropy")
        options: dict[str, Any] = {"accumulate": 1, "precision": "float32", "ema_decay": 0.9}
        update = model_update(model.train(), ADAM, max_grad_norm=0.5, **options)
        subject = Subject(update.update, model, [model.module], CPU, lambda: None)
        update.execute_by(choose_engine(wanted, subject, is_long=False))  # type: ignore[arg-type]
        losses = []
        for step in range(6):
            torch.manual_seed(step)
            batch = (torch.randn(shape), torch.randint(0, 3, shape[:1]))
            losses.append(update.step(batch, step, learning_rate=0.01 * step, is_last=False))
        ends.append((losses, dict(model.state_dict()), dict(update.state_dict())))
    assert len(replays(update)) == 1
    torch.testing.assert_close(*ends, rtol=0, atol=0)
