"""Gradients that are not kept in vectors move the weights as those that are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.nn.flat import FlatParameters
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam, Sgd

ADAMW = Adam(kind="adamw", learning_rate=0.01, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1)
ADAM = ADAMW.replace(kind="adam")
SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def network() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return nn.Sequential(convolution, nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 2))


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 3, 3, 3, generator=generator) for _ in range(6)]


def trained(keeps: bool, config: Any, *, gathers: int = 1, **options: Any) -> Learner:
    learner = Learner(network(), config, keeps_gradients=keeps, max_grad_norm=0.5, **options)
    rate = torch.tensor(config.learning_rate)
    grad_scale = None if gathers == 1 else torch.tensor(1 / gathers)
    for index, batch in enumerate(batches()):
        loss_fn = lambda forward, batch=batch: (forward(batch).square().mean(), None)  # noqa: E731
        if (index + 1) % gathers:
            learner.accumulate(loss_fn)
        else:
            learner.step(loss_fn, rate, grad_scale=grad_scale)
    return learner


@pytest.mark.parametrize("config", [ADAMW, ADAM, SGD], ids=["adamw", "adam", "sgd"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gathers": 3},
        {"ema_decay": 0.9},
        {"undecayed": ("0.bias", "2.bias")},
        {"groups": (Group("head", ("4",), rate=0.1), Group("body", ("2",), is_frozen=True))},
        {"precision": "float16"},
    ],
    ids=["plain", "gathered", "ema", "undecayed", "groups", "float16"],
)
def test_they_move_weights_and_moments_as_kept_ones_do(config: Any, options: Any) -> None:
    if options.get("precision") and not torch.cuda.is_available():
        options = {"precision": "bfloat16"}
    kept, released = (trained(keeps, config, **options) for keeps in (True, False))
    for name, weight in kept.weights().items():
        torch.testing.assert_close(released.weights()[name], weight, rtol=1e-5, atol=1e-6)
    moments = zip(released.optimizer.moments, kept.optimizer.moments, strict=True)
    for own, other in ((a, b) for one, two in moments for a, b in zip(one, two, strict=True)):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_they_take_no_memory_between_steps() -> None:
    learner = trained(False, ADAMW)
    assert all(weight.grad is None for weight in learner.module.parameters())
    assert all(gradient.numel() == 0 for gradient in learner.flat.gradients)


def test_a_gradient_that_is_not_finite_moves_nothing() -> None:
    learner = trained(False, ADAMW)
    before = {name: weight.clone() for name, weight in learner.weights().items()}
    bad = lambda forward: (forward(batches()[0]).sum() * float("nan"), None)  # noqa: E731
    _, norm, _ = learner.step(bad, torch.tensor(0.1))
    assert not torch.isfinite(norm)
    for name, weight in learner.weights().items():
        assert torch.equal(weight, before[name])


def test_those_that_wait_are_saved_and_restored_by_name() -> None:
    first, second = (FlatParameters(network(), keeps_gradients=False) for _ in range(2))
    net = network()
    flat = FlatParameters(net, keeps_gradients=False)
    net(batches()[0]).sum().backward()
    saved = {name: gradient.clone() for name, gradient in flat.gradients_by_name().items()}
    first.load_gradients(saved)
    for name, gradient in first.gradients_by_name().items():
        assert torch.equal(gradient, saved[name])
    first.clear_gradients()
    assert all(not one.any() for one in first.gradients_by_name().values())
    assert all(not one.any() for one in second.gradients_by_name().values())
    kept = FlatParameters(network())
    kept.load_gradients(saved)
    for name, gradient in kept.gradients_by_name().items():
        assert torch.equal(gradient, saved[name])


def test_a_sparse_gradient_is_a_row_of_the_vector_as_well() -> None:
    found = []
    for keeps in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(6, 3, sparse=True), nn.Linear(3, 1))
        learner = Learner(net, ADAMW, keeps_gradients=keeps, max_grad_norm=0.5)
        for index in range(3):
            ids = torch.tensor([index, index + 1])
            loss_fn = lambda forward, ids=ids: (forward(ids).square().mean(), None)  # noqa: E731
            learner.step(loss_fn, torch.tensor(0.01))
        found.append(learner.weights())
    torch.testing.assert_close(found[1], found[0])
