"""The supervised trainer on a GPU: exact, guarded on the device, and without waiting for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import Diverged
from ludus.data.batches.splits import Examples
from ludus.nn.engines.graph import CapturedCode
from ludus.testing import trainers

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # Torch warns of its own code, and of what its compiler for a GPU does not do.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


def examples(*, poison: bool = False) -> Examples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(640, 16, generator=generator)
    labels = (inputs[:, :4].sum(1) > 0).long()
    if poison:
        inputs[100] = float("nan")
    return Examples(inputs, labels)


def make(**changes: Any) -> ludus.Trainer:
    config = ludus.example("supervised").replace(
        **{
            "data": None,
            "max_epochs": 3,
            "learning_rate_schedule.warmup_steps": 5,
            "batch_size": 64,
            "accumulate": 2,
            "ema_decay": 0.9,
            "log_every_opt_steps": 4,
            "engine": "eager",
            "model": {
                "kind": "mlp",
                "inputs": 16,
                "widths": [32],
                "outputs": 2,
                "activation": "relu",
                "layer_norm": True,
                "dropout": 0.1,
            },
            "evaluation.metric": "validation/epoch_loss",
            "evaluation.keep": 1,
            "settings.device": "cuda",
            "settings.display": "none",
            "settings.loggers": [],
            "settings.checkpoint.every_opt_steps": 2,
            **changes,
        }
    )
    data = examples()
    return ludus.Trainer(config, train_loader=data, val_loader=data)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "bfloat16_pure"])
def test_killed_anywhere_on_a_gpu_a_run_ends_with_the_same_bytes(precision, tmp_path: Path) -> None:
    trainers.check_kill_anywhere(lambda: make(precision=precision), tmp_path, max_kills=4)


def test_a_compiled_run_on_a_gpu_is_exact_too(tmp_path: Path) -> None:
    trainers.check_kill_anywhere(lambda: make(engine="compiled"), tmp_path, max_kills=3)


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_compiled_update_is_captured_as_a_graph(kind: type, tmp_path: Path) -> None:
    trainer = make(engine="compiled", accumulate=1)
    trainer.fit(root=str(tmp_path))
    trainer.train_data.start(0)
    batch = kind(trainer.train_data.next())
    for index in range(5):
        trainer.update.step(batch, index, learning_rate=1e-3, is_last=True)
    captured = trainer.update.execute.update
    assert isinstance(captured, CapturedCode)
    assert all(one.is_possible for one in captured.graphed.values())
    (graphed,) = [one for nesting, one in captured.graphed.items() if nesting[0][0] is kind]
    assert graphed._graphs


def test_compiled_and_eager_learn_the_same_on_a_gpu(tmp_path: Path) -> None:
    # Dropout draws differently when compiled, so it is off here.
    losses = []
    for engine in ("eager", "compiled"):
        trainer = make(engine=engine, **{"model.dropout": 0.0})
        trainer.fit(root=str(tmp_path), name=engine)
        losses.append(trainer.logger.written["train/epoch_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_an_update_does_not_wait_for_the_device(tmp_path: Path) -> None:
    trainer = make()
    trainer.fit(root=str(tmp_path))
    batch = trainer.train_data.next() if not trainer.train_data.has_ended() else None
    trainer.train_data.start(0)
    batch = trainer.train_data.next()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for index in range(4):
            metrics = trainer.update.step(batch, index, learning_rate=1e-3, is_last=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert metrics["train/loss"].is_cuda


def test_a_bad_gradient_is_skipped_on_the_device_and_told_at_the_next_write(tmp_path: Path) -> None:
    trainer = make(accumulate=1)
    trainer.loaders["train"] = examples(poison=True)
    with pytest.raises(Diverged, match="nan"):
        trainer.fit(root=str(tmp_path))
    assert torch.isfinite(trainer.flat.vectors[0]).all()
    assert torch.isfinite(trainer.update.ema[0]).all()


def test_tf32_is_less_exact_and_repeats_and_leaves_torch_as_it_was(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    losses: dict[Any, list[float]] = {}
    for tf32 in (False, True):
        for name in ("first", "again"):
            # A width at which the library has kernels of TF32 to choose from.
            trainer = make(tf32=tf32, **{"model.widths": [512, 512], "model.dropout": 0.0})
            trainer.fit(root=str(tmp_path), name=f"{name}-{tf32}")
            losses.setdefault(tf32, []).append(trainer.logger.written["train/epoch_loss"])
    assert losses[False][0] == losses[False][1]
    assert losses[True][0] == losses[True][1]
    assert losses[True][0] != losses[False][0]
    assert losses[True][0] == pytest.approx(losses[False][0], rel=0.05)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
