"""Gradient checkpointing: the same numbers to the bit, with fewer activations kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError
from ludus.nn import recompute
from ludus.nn.recompute import Recomputed
from ludus.testing.trainers import check_kill_anywhere
from tests.supervised.conftest import Tiny


class Block(nn.Module):
    """Dropout draws, batch norm keeps statistics, and a count is used as it is changed."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.BatchNorm1d(13), nn.Linear(13, 13)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        self.seen.add_(1)
        hidden = nn.functional.dropout(self.inner(self.norm(x)).tanh(), 0.3, self.training)
        return x + scale * hidden.sin() / self.seen


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.tail = nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, scale=0.5)
        out: Tensor = self.tail(x)
        return out


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network()


def step(
    names: Sequence[str], *, dtype: torch.dtype | None = None
) -> tuple[int, dict[str, Tensor]]:
    """Return how many numbers were kept for one backward pass, and all gradients and buffers after it."""
    net, kept = network(), []
    recomputed = Recomputed(net, names)

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    torch.manual_seed(1)
    x = torch.randn(16, 13)
    autocast = torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None)
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, recomputed.on(), autocast:
        loss = net(x).float().square().mean()
    loss.backward()
    weights = {id(weight) for weight in net.parameters()}
    size = sum(one.numel() for one in kept if id(one) not in weights)
    found = {
        name: weight.grad for name, weight in net.named_parameters() if weight.grad is not None
    }
    draws = {"next random number": torch.rand(())}
    return size, {**found, **dict(net.named_buffers()), **draws}


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize(
    "names", [["blocks"], ["blocks.*", "tail"], ["blocks.1"], ["blocks.0.norm"]]
)
def test_the_numbers_are_the_same_to_the_bit_and_less_is_kept(
    names: list[str], dtype: torch.dtype | None
) -> None:
    plain, expected = step([], dtype=dtype)
    size, found = step(names, dtype=dtype)
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    assert size < plain
    if names == ["blocks.*", "tail"]:
        assert size < plain / 3


def test_buffers_and_random_numbers_would_differ_if_they_were_not_seen_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The negative control of the test above."""
    _, expected = step([])
    monkeypatch.setattr(recompute, "_as_found", lambda found: recompute.contextlib.nullcontext())
    _, found = step(["blocks"])
    differ = {
        name.rpartition(".")[2] for name in found if not torch.equal(found[name], expected[name])
    }
    assert {"running_mean", "seen", "weight"} <= differ


def test_a_mode_that_changes_before_the_backward_pass_is_that_of_the_forward_pass() -> None:
    gradients = []
    for names in ([], ["blocks"]):
        net = network()
        torch.manual_seed(1)
        x = torch.randn(16, 13)
        with Recomputed(net, names).on():
            loss = net(x).square().mean()
        net.eval()
        loss.backward()
        gradients.append([weight.grad for weight in net.parameters()])
        assert not any(part.training for part in net.modules())
    assert all(
        torch.equal(a, b)
        for a, b in zip(*gradients, strict=True)
        if a is not None and b is not None
    )


def test_the_network_is_as_it_was_after_the_block() -> None:
    net = network()
    own = net.blocks[1].forward
    net.blocks[1].__dict__["forward"] = own
    with Recomputed(net, ["blocks"]).on():
        assert all("forward" in vars(block) for block in net.blocks)
        assert all(
            not torch.is_tensor(p) or not p.requires_grad for p in net(torch.randn(4, 13)).detach()
        )
    assert "forward" not in vars(net.blocks[0])
    assert vars(net.blocks[1])["forward"] is own


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ["block"],
            r"'gradient_checkpointing.0' is block, and the network has no .* Did you mean 'blocks'",
        ),
        (
            ["blocks", "tail.9"],
            r"'gradient_checkpointing.1' is tail.9, and the network has no module",
        ),
        (["tail.0.*"], "there is no module in tail.0"),
        (
            ["blocks", "blocks.1.norm"],
            "names blocks.1.norm .* and blocks.1 .*, one of which is in the other",
        ),
        (["tail", "tail"], "one of which is in the other"),
    ],
)
def test_a_name_that_cannot_be_is_refused(names: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Recomputed(network(), names)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused() -> None:
    net = nn.Sequential(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)))
    with pytest.raises(ConfigError, match="a TorchScript module"):
        Recomputed(net, ["0"])


def fitted(config: Any, **names: Any) -> tuple[ludus.Trainer, dict[str, Tensor]]:
    trainer = ludus.Trainer(config)
    trainer.set_model(network())
    trainer.fit(**names)
    return trainer, trainer.weights()


@pytest.mark.parametrize(
    "changes", [{}, {"accumulate": 2, "ema_decay": 0.9, "precision": "bfloat16"}]
)
def test_a_run_ends_with_the_same_bytes(
    tiny: Tiny, tmp_path: Path, changes: dict[str, Any]
) -> None:
    found = []
    for names in ([], ["blocks"]):
        config = tiny(model=None, engine="eager", gradient_checkpointing=names, **changes)
        found.append(fitted(config, root=str(tmp_path), name=f"of-{len(names)}")[1])
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())


def test_a_killed_run_resumes_to_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    often = {"settings.checkpoint.every_seconds": 0.0, "settings.checkpoint.every_stages": 3}

    def make() -> Any:
        trainer = ludus.Trainer(tiny(model=None, gradient_checkpointing=["blocks"], **often))
        trainer.set_model(network())
        return trainer

    check_kill_anywhere(make, tmp_path, max_kills=3)


def test_auto_calls_such_an_update_eagerly_and_says_why(tiny: Tiny, tmp_path: Path) -> None:
    for engine in ("auto", "tape"):
        config = tiny(engine=engine, gradient_checkpointing=["layers"])
        trainer = ludus.Trainer(config)
        trainer.fit(root=str(tmp_path), name=engine)
        told = (tmp_path / engine / "events.jsonl").read_text()
        assert (
            "the update is not taped: 'gradient_checkpointing' computes activations again" in told
        )
    with pytest.raises(
        ConfigError, match=r"'engine' is compiled, but 'gradient_.*; set engine to auto"
    ):
        ludus.Trainer(tiny(engine="compiled", gradient_checkpointing=["layers"])).fit(
            root=str(tmp_path)
        )
