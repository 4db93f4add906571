"""The compiled update learns what the eager one learns, and a compiled run resumes exactly.

Compiling takes most of the time here, so one compiled run serves all tests.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus import Model, Trainer
from ludus.fit.update import ModelUpdate
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import Chosen
from ludus.nn.optimizer import Adam, Sgd
from ludus.store.checkpoint import digest_of
from tests.fit.made import model_update
from tests.supervised.conftest import QUIET, WINE, history

# Torch warns of its own code when its compiler is first imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")

CONFIG: dict[str, Any] = {
    "data": WINE,
    "model": None,
    # Equal batches: every new shape would be compiled anew.
    "batch_size": 13,
    "drop_last": True,
    "max_epochs": 3,
    "accumulate": 2,
    "max_grad_norm": 0.5,
    "ema_decay": 0.9,
    "evaluation.patience": None,
    "evaluation.keep": 0,
    "log_every_opt_steps": 1,
    "learning_rate_schedule": {
        "kind": "cosine",
        "warmup_steps": 4,
        "final": 0.0,
        "total_steps": None,
    },
}


def network() -> nn.Module:
    torch.manual_seed(1)
    # Without a bias before the batch norm, which would cancel it: Adam would follow its rounding.
    first = nn.Linear(13, 8, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def make(cls: type[Trainer] = Trainer, *, compiled: bool) -> Trainer:
    trainer = cls(
        ludus.example("supervised").replace(
            **CONFIG, engine="compiled" if compiled else "tape", **QUIET
        )
    )
    trainer.set_model(network())
    return trainer


def digest(trainer: Trainer) -> str:
    return digest_of({name: dict(part.state_dict()) for name, part in trainer.all_parts().items()})


class Straight(NamedTuple):
    """A trainer that has made a whole compiled run, and its state at the end."""

    trainer: Trainer
    root: Path
    digest: str


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    root, trainer = tmp_path_factory.mktemp("compiled"), make(compiled=True)
    trainer.fit(root=str(root), name="straight")
    return Straight(trainer, root, digest(trainer))


def test_a_compiled_run_learns_as_an_eager_one(straight: Straight) -> None:
    """With accumulation, a running mean, clipping, a schedule and batch norm: 12 steps."""
    root, trainer = straight.root, straight.trainer
    eager = make(compiled=False)
    eager.fit(root=str(root), name="eager")
    assert trainer.config.engine == "compiled"
    for metric in ("train/loss", "train/grad_norm", "train/epoch_loss", "validation/epoch_loss"):
        compiled = history(root / "straight", metric)
        assert len(compiled) == (3 if "epoch" in metric else 12)
        assert compiled == pytest.approx(history(root / "eager", metric), rel=1e-5)
    for metric in ("train/learning_rate", "train/epoch_accuracy", "test/accuracy"):
        assert history(root / "straight", metric) == history(root / "eager", metric)
    torch.testing.assert_close(trainer.model.state_dict(), eager.model.state_dict())
    torch.testing.assert_close(trainer.update.ema, eager.update.ema)


def test_a_compiled_run_resumes_exactly(straight: Straight) -> None:
    """Interrupted between the two batches of a step, in the middle of an epoch."""

    class Interrupted(Trainer):
        derived = (*Trainer.derived, "num_batches")
        num_batches = 0

        def after_step(self) -> None:
            self.num_batches += 1
            self.run.interrupted = self.num_batches == 11

    root = straight.root
    broken = make(Interrupted, compiled=True)
    assert broken.fit(root=str(root), name="broken").status == "interrupted"
    assert broken.update.num_gathered == 1
    resumed = make(compiled=True)
    result = resumed.fit(root=str(root), name="broken", resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    assert digest(resumed) == straight.digest
    written = [(root / name / "metrics.jsonl").read_bytes() for name in ("broken", "straight")]
    assert written[0] == written[1]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as for the compiler, but run the trace as it is, which costs a tenth of a second."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")


SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
ADAM = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01)
ADAMW = Adam(kind="adamw", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01)

CASES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimizer": ADAM},
    "adamw": {"optimizer": ADAMW},
    "clipped": {"max_grad_norm": 0.01},
    "mean weights": {"ema_decay": 0.5},
    "accumulated": {"accumulate": 3},
    "bfloat16": {"precision": "bfloat16", "optimizer": ADAM},
    "float16": {"precision": "float16", "accumulate": 2},
    "another loss": {"loss": "l1"},
    "other layers": {"activation": nn.Tanh},
    "tied and frozen": {"is_tied": True},
}


def update_of(
    *,
    is_traced: bool,
    optimizer: Any = SGD,
    loss: Any = "mse",
    activation: type[nn.Module] = nn.ReLU,
    is_tied: bool = False,
    **changes: Any,
) -> ModelUpdate:
    torch.manual_seed(0)
    second = nn.Linear(4, 4, bias=False)
    layers = nn.Sequential(nn.Linear(4, 4), activation(), second, nn.BatchNorm1d(4))
    if is_tied:
        layers[2].weight = layers[0].weight
        layers[0].bias.requires_grad_(False)
    model = Model(layers, loss=loss)
    options = {"accumulate": 1, "max_grad_norm": None, "precision": "float32", "ema_decay": None}
    update = model_update(model, optimizer, **(options | changes))
    if is_traced:
        trace(update)
    return update


def trace(update: ModelUpdate) -> None:
    by = partial(compiled.compile_method, device=torch.device("cpu"))
    update.execute_by(Chosen("compiled", by, "compiled", []))


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randn(2, 8, 4, generator=generator)) for _ in range(count)]  # type: ignore[misc]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.usefixtures("traced")
def test_the_traced_update_is_the_eager_one(case: dict[str, Any]) -> None:
    """All cases have tensors of the same shapes: none may be given what was traced for another."""
    eager, traced = (update_of(is_traced=traced, **case) for traced in (False, True))
    data = batches(7)
    for index, batch in enumerate(data):
        is_last = index == len(data) - 1
        one, two = (
            update.step(batch, index, learning_rate=0.1 / (index + 1), is_last=is_last)
            for update in (eager, traced)
        )
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    for name in ("model", "optimizer"):
        states = [getattr(update, name).state_dict() for update in (traced, eager)]
        torch.testing.assert_close(*states, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(traced.state_dict(), eager.state_dict(), rtol=1e-4, atol=1e-5)
    assert traced.close_epoch() == pytest.approx(eager.close_epoch(), rel=1e-4)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.usefixtures("traced")
def test_a_traced_update_skips_a_batch_that_is_not_finite(bad: float) -> None:
    """Row 10 of the faults: weights, moments, means and buffers stay as they were."""
    update = update_of(is_traced=True, optimizer=ADAMW, ema_decay=0.9, max_grad_norm=1.0)
    good, other = batches(2)
    update.step(good, 0, learning_rate=0.1, is_last=True)
    before = copy.deepcopy((update.flat.vectors[0], update.optimizer.state_dict(), update.ema))
    poisoned = other[0].clone()
    poisoned[2, 2] = bad
    metrics = update.step((poisoned, other[1]), 1, learning_rate=0.1, is_last=True)
    assert not torch.isfinite(metrics["train/grad_norm"])
    after = (update.flat.vectors[0], update.optimizer.state_dict(), update.ema)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(torch.isfinite(buffer).all() for buffer in update.model.module.buffers())
    update.step(other, 1, learning_rate=0.1, is_last=True)
    assert torch.isfinite(update.flat.vectors[0]).all()
    assert not update.flat.vectors[0].equal(before[0])


@pytest.mark.usefixtures("traced")
def test_a_traced_learning_rate_of_1e30_never_makes_a_weight_infinite() -> None:
    """A linear model: its gradient stays finite, and the weight decay alone overflows."""
    torch.manual_seed(0)
    model = Model(nn.Linear(4, 4), loss="cross_entropy")
    update = model_update(
        model,
        ADAMW.replace(learning_rate=1e30),
        accumulate=1,
        max_grad_norm=1.0,
        precision="float32",
        ema_decay=0.9,
    )
    trace(update)
    norms = []
    for inputs, _ in batches(5):
        batch = (inputs, torch.arange(8) % 4)
        metrics = update.step(batch, 0, learning_rate=1e30, is_last=True)
        norms.append(metrics["train/grad_norm"].item())
        assert torch.isfinite(update.flat.vectors[0]).all()
        assert update.ema is not None
        assert torch.isfinite(update.ema[0]).all()
    assert norms[-1] == float("inf")


@pytest.mark.usefixtures("traced")
def test_float16_overflows_are_skipped_in_a_traced_update_too() -> None:
    updates = [
        update_of(is_traced=is_traced, precision="float16", ema_decay=0.5, activation=nn.Tanh)
        for is_traced in (False, True)
    ]
    inputs, targets = batches(1)[0]
    for update in updates:
        before = update.flat.vectors[0].clone()
        for _ in range(4):
            update.step((inputs, 1e3 * targets), 0, learning_rate=0.1, is_last=True)
        assert update.flat.vectors[0].equal(before)
        scaling = update.learner.scaling
        assert (scaling.num_skipped.item(), scaling.scale.item()) == (4, 2.0**12)
