"""Networks of any class on a GPU: compiled with guards, killed and resumed with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.data.batches.splits import Examples
from ludus.fit import build
from ludus.nn.engines.guarded import GuardedCall
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam
from ludus.testing import trainers

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


class Block(nn.Module):
    """A residual block as a user writes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(nn.functional.dropout(self.norm(self.conv(x)), 0.1, self.training))


class Pictures(nn.Module):
    """A small residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)
        self.blocks = nn.ModuleList([Block(16) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def make(**changes: Any) -> ludus.Trainer:
    config = ludus.example("supervised").replace(
        **{
            "data": None, "model": None, "max_epochs": 2, "batch_size": 32, "ema_decay": None,
            "evaluation.patience": None, "evaluation.keep": 0, "log_every_opt_steps": 2,
            "engine": "compiled", "precision": "bfloat16",
            # By auto two runs may choose differently, as they time themselves.
            "memory_format": "contiguous",
            "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
            "settings.device": "cuda", "settings.display": "none", "settings.loggers": [],
            "settings.checkpoint.every_opt_steps": 2, **changes,
        },
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 3, 12, 12, generator=generator)
    data = Examples(inputs, torch.randint(4, (200,), generator=generator))
    trainer: Any = ludus.Trainer(config, train_loader=data, val_loader=data)
    torch.manual_seed(1)
    trainer.set_model(Pictures())
    return trainer


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_a_compiled_foreign_network_killed_anywhere_ends_with_the_same_bytes(
    memory_format: str, tmp_path: Path
) -> None:
    trainers.check_kill_anywhere(lambda: make(memory_format=memory_format), tmp_path, max_kills=3)


def test_so_does_one_whose_gradients_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_LARGE", 1)
    trainer = make()
    trainer.prepare(max_steps=None)
    assert not trainer.update.flat.keeps_gradients
    trainers.check_kill_anywhere(lambda: make(accumulate=2), tmp_path, max_kills=3)


def test_auto_decides_both_the_order_of_memory_and_whether_to_compile(tmp_path: Path) -> None:
    trainer: Any = make(engine="auto", memory_format="auto")
    trainer.fit(root=str(tmp_path), name="auto")
    assert trainer.config.engine == "eager"
    assert trainer.config.memory_format in ("contiguous", "channels_last")


def test_what_is_changed_is_noticed_on_a_gpu_too() -> None:
    net = Block(8).cuda().eval()
    call, x = GuardedCall(net.forward), torch.randn(2, 8, 5, 5, device="cuda")
    torch.testing.assert_close(call(x), net(x), rtol=1e-3, atol=1e-4)
    net.norm.eps = 10.0
    torch.testing.assert_close(call(x), net(x), rtol=1e-3, atol=1e-4)


def test_released_gradients_move_weights_as_kept_ones_without_waiting() -> None:
    found = []
    config = Adam(
        kind="adamw", learning_rate=0.01, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1
    )
    for keeps in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).cuda()
        learner = Learner(net, config, max_grad_norm=0.1, keeps_gradients=keeps)
        rate, x = torch.tensor(0.01, device="cuda"), torch.ones(4, 8, device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                learner.step(lambda forward, x=x: (forward(x).square().mean(), None), rate)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found.append(learner.flat.vectors[0].clone())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
