"""`precision: bfloat16_pure`: weights, gradients and moments in bfloat16, their mean in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.sgd import sgd

import ludus
from ludus.core.errors import ConfigError
from ludus.core.states import StateError
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from ludus.testing.trainers import check_kill_anywhere
from tests.command_line import in_process
from tests.supervised.conftest import Tiny, history

PURE = {"precision": "bfloat16_pure"}
BEST = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
SGD = {
    "kind": "sgd",
    "learning_rate": 0.5,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 1e-4,
}
HALF = torch.bfloat16


def fitted(config: Any, root: Path, network: nn.Module | None = None) -> ludus.Trainer:
    trainer = ludus.Trainer(config)
    if network is not None:
        trainer.set_model(network)
    trainer.fit(root=str(root))
    return trainer


@pytest.mark.parametrize("engine", ["eager", "tape"])
def test_weights_gradients_and_moments_are_bfloat16_and_it_learns(
    tiny: Tiny, tmp_path: Path, engine: str
) -> None:
    own = {"max_epochs": 8, "accumulate": 2, "max_grad_norm": 1.0, "engine": engine}
    own |= {"optimizer.learning_rate": 0.01}
    trainer = fitted(tiny(**PURE, **own), tmp_path)
    assert {vector.dtype for vector in trainer.flat.vectors} == {HALF}
    assert {gradient.dtype for gradient in trainer.flat.gradients} == {HALF}
    assert {vector.dtype for moment in trainer.optimizer.moments for vector in moment} == {HALF}
    losses = history(trainer.run.files.place, "validation/epoch_loss")
    assert losses[-1] < 0.5 * losses[0]


def test_tape_and_eager_are_the_same_to_the_bit(tiny: Tiny, tmp_path: Path) -> None:
    found = [
        fitted(tiny(**PURE, engine=engine, ema_decay=0.9, name=engine), tmp_path).weights()
        for engine in ("eager", "tape")
    ]
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())


def test_bfloat16_alone_keeps_float32_weights(tiny: Tiny, tmp_path: Path) -> None:
    trainer = fitted(tiny(precision="bfloat16"), tmp_path)
    assert {vector.dtype for vector in trainer.flat.vectors} == {torch.float32}


def test_a_step_below_the_last_digit_of_a_weight_is_lost_but_the_mean_is_float32(
    tiny: Tiny, tmp_path: Path
) -> None:
    slow = {"optimizer.learning_rate": 1e-9}
    trainer = fitted(tiny(**PURE, ema_decay=0.5, **slow), tmp_path)
    ema = trainer.update.ema
    assert ema is not None
    assert ema[0].dtype == torch.float32
    assert torch.equal(ema[0], trainer.flat.vectors[0].float())
    moved = fitted(tiny(**PURE, ema_decay=0.5, name="moved"), tmp_path).update
    assert moved.ema is not None
    assert not torch.equal(moved.ema[0], moved.ema[0].to(HALF).float())


def test_sgd_that_torch_computes_wrongly_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    """If torch has mended its kernel, the refusal in fit/build.py can go."""
    with pytest.raises(
        ConfigError, match="SGD for bfloat16 weights computes wrong numbers on a CPU"
    ):
        fitted(tiny(**PURE, optimizer=SGD), tmp_path)
    weights, gradients = torch.ones(64, dtype=HALF), torch.ones(64, dtype=HALF)
    sgd(
        [weights], [gradients], [None], foreach=False, fused=True, weight_decay=0.0, momentum=0.0,
        lr=0.5, dampening=0.0, nesterov=False, maximize=False,
    )  # fmt: skip
    assert not torch.equal(weights, torch.full((64,), 0.5, dtype=HALF))


def test_the_mean_is_that_of_the_weights_after_each_step(tiny: Tiny, tmp_path: Path) -> None:
    trainer = ludus.Trainer(tiny(**PURE, ema_decay=0.75))
    mean, total = torch.zeros(()), 0.0

    def after_step() -> None:
        nonlocal mean, total
        mean, total = 0.75 * mean + 0.25 * trainer.flat.vectors[0].float(), 0.75 * total + 0.25

    trainer.after_step = after_step  # type: ignore[method-assign]
    trainer.fit(root=str(tmp_path))
    assert trainer.update.ema is not None
    assert torch.allclose(trainer.update.ema[0], mean / total, atol=1e-6)


class Normed(nn.Module):
    """A network with running statistics, and with a float32 mask among its buffers."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(13, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.after = nn.LayerNorm(8)
        self.register_buffer("mask", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.after(self.norm(self.first(x)) * self.mask)
        out: torch.Tensor = self.last(hidden.relu())
        return out


def test_layers_that_normalise_and_buffers_stay_float32(tiny: Tiny, tmp_path: Path) -> None:
    trainer = fitted(tiny(**PURE, model=None, engine="eager"), tmp_path, Normed())
    kinds = {name: tensor.dtype for name, tensor in trainer.model.state_dict().items()}
    assert kinds["first.weight"] == HALF
    assert kinds["after.weight"] == torch.float32
    assert {kinds[f"norm.{name}"] for name in ("weight", "bias", "running_mean")} == {torch.float32}
    assert kinds["mask"] == torch.float32


def test_a_killed_run_resumes_to_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    often = {"settings.checkpoint.every_seconds": 0.0, "settings.checkpoint.every_stages": 3}
    config = tiny(**PURE, accumulate=2, ema_decay=0.9, **BEST, **often)
    check_kill_anywhere(lambda: ludus.Trainer(config), tmp_path, max_kills=2)
    storage = LocalStorage(str(tmp_path / "unbroken"))
    state = checkpoint.read(storage, checkpoint.numbers(storage)[-1]).state
    assert {weight.dtype for weight in state["model"].values()} == {HALF}
    assert {mean.dtype for mean in state["update"]["ema"].values()} == {torch.float32}


def test_a_mean_of_another_type_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    trainer = fitted(tiny(**PURE, ema_decay=0.9), tmp_path)
    state = trainer.update.state_dict()
    halved = {**state, "ema": {name: mean.to(HALF) for name, mean in state["ema"].items()}}
    with pytest.raises(StateError, match="float32"):
        trainer.update.load_state_dict(halved)


def test_kept_weights_are_bfloat16_by_name_and_are_evaluated(
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer = fitted(tiny(**PURE, ema_decay=0.9, **BEST, name="pure"), tmp_path)
    weights, _ = read_model(LocalStorage(str(tmp_path / "pure")), "models/best")
    assert {weight.dtype for weight in weights.values()} == {HALF}
    call = in_process(monkeypatch, capsys)
    for model in ("best", "last"):
        told = call("eval", str(tmp_path / "pure"), "--model", model, "--json")
        assert told.code == 0, told.err
    assert trainer.evaluate().keys() == {"validation/epoch_loss", "validation/epoch_accuracy"}


def test_an_evaluation_in_a_process_of_its_own_takes_them(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(**PURE)
    trainer = ludus.Trainer(config)
    trainer.set_evaluator(ludus.AsyncEvaluator(config))
    trainer.fit(root=str(tmp_path))
    assert len(history(trainer.run.files.place, "validation/epoch_loss")) == 2


@pytest.mark.parametrize("kind", ["dqn", "ppo", "active"])
def test_where_it_is_not_it_is_refused_in_a_sentence(kind: str) -> None:
    with pytest.raises(ConfigError, match="precision"):
        ludus.example(kind).replace(**PURE)


def test_a_mean_that_bfloat16_cannot_hold_is_refused(tiny: Tiny) -> None:
    free = {
        "kind": "schedule_free_adamw", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8,
        "weight_decay": 0.0, "step_power": 0.0, "rate_power": 2.0,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"schedule_free_adamw, .* does not move in bfloat16"):
        tiny(**PURE, optimizer=free, ema_decay=None)


def test_a_fused_sgd_of_a_script_is_refused_too(tiny: Tiny, tmp_path: Path) -> None:
    trainer = ludus.Trainer(tiny(**PURE))
    trainer.set_optimizer(torch.optim.SGD, lr=0.1, fused=True)
    with pytest.raises(ConfigError, match=r"torch's fused SGD for bfloat16 .* without fused"):
        trainer.fit(root=str(tmp_path))
