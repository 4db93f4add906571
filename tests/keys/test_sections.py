"""What each key does of the sections that several trainers can hold: optimizers, schedules, networks,
models, data sets and loggers."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, validate
from ludus.core.run import Run
from ludus.nn.flat import FlatParameters
from ludus.nn.optimizer import AnyOptimizerSection, Optimizer
from ludus.nn.schedules import Schedule, ScheduleSection
from ludus.rl.networks._body import make_body
from ludus.session.logger import Logger
from ludus.store.local import LocalStorage
from tests.keys.table import changes

# Optimizers, on two weights whose gradients are given


class _Optimizer(StrictConfig):
    section: AnyOptimizerSection
    """One optimizer."""


ADAM = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
SGD = {"learning_rate": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
RMSPROP = {
    "learning_rate": 0.1, "alpha": 0.9, "eps": 1e-8, "momentum": 0.0, "centered": False, "weight_decay": 0.0,
}  # fmt: skip
RADAM = {**ADAM, "decoupled": True}
MUON = {
    **ADAM, "momentum": 0.9, "nesterov": False, "newton_schulz_steps": 5, "adjust": "original",
    "adamw_parameters": [], "adamw_rate": 1.0,
}  # fmt: skip
FREE = {**ADAM, "step_power": 0.0, "rate_power": 2.0}
OPTIMIZERS = {
    "adam": ADAM, "adamw": ADAM, "sgd": SGD, "rmsprop": RMSPROP, "radam": RADAM, "muon": MUON,
    "schedule_free_adamw": FREE,
}  # fmt: skip
GRADIENTS = ([1.0, -2.0], [3.0, 0.5], [0.0, 1.0])


def moved(kind: str, **changed: Any) -> list[Tensor]:
    """Return the weights, 1 and 2 at first, after each of three steps."""
    name = kind.split()[1]
    data = {"kind": name, **OPTIMIZERS[name], **changed}
    config = validate(_Optimizer, {"section": data}, source="x").section
    weights = nn.Linear(2, 1, bias=False)
    flat = FlatParameters(weights)
    flat.vectors[0].copy_(torch.tensor([1.0, 2.0]))
    optimizer, found = Optimizer(config, flat), []
    for gradient in GRADIENTS:
        flat.gradients[0].copy_(torch.tensor(gradient))
        optimizer.step(torch.tensor(config.learning_rate), stays=[None])
        found.append(flat.vectors[0].detach().clone())
    return found


ADAMS = "optimizer adam, optimizer adamw"
ALL = f"{ADAMS}, optimizer sgd"


@changes(ALL, "kind", "learning_rate")
def test_a_step_goes_as_far_as_the_learning_rate(kind: str) -> None:
    start = torch.tensor([1.0, 2.0])
    way, twice = moved(kind)[0] - start, moved(kind, learning_rate=0.2)[0] - start
    assert torch.allclose(twice, 2 * way, atol=1e-6)
    # Adam's first step has one length for all weights, that of plain descent is the gradient's.
    expected = [-0.1, 0.2] if kind.endswith("sgd") else [-0.1, 0.1]
    assert torch.allclose(way, torch.tensor(expected), atol=1e-5)


@changes(ADAMS, "beta1", "beta2")
def test_the_means_of_the_gradient_and_of_its_square_forget_so_slowly(kind: str) -> None:
    for beta1, beta2 in ((0.5, 0.99), (0.9, 0.5)):
        first, second, place = torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 2.0])
        for n, gradient in enumerate(torch.tensor(GRADIENTS), 1):
            first = beta1 * first + (1 - beta1) * gradient
            second = beta2 * second + (1 - beta2) * gradient**2
            place = place - 0.1 * (first / (1 - beta1**n)) / (second / (1 - beta2**n)).sqrt()
        assert torch.allclose(moved(kind, beta1=beta1, beta2=beta2)[-1], place, atol=1e-5)


@changes(ADAMS, "eps")
def test_eps_is_added_to_the_denominator(kind: str) -> None:
    start = torch.tensor([1.0, 2.0])
    way = moved(kind, eps=1.0)[0] - start
    # The gradients are 1 and -2: 0.1 * 1 / (1 + 1) and 0.1 * 2 / (2 + 1).
    assert torch.allclose(way, torch.tensor([-0.05, 0.2 / 3]), atol=1e-5)


@changes(ALL, "weight_decay")
def test_weights_are_pulled_to_zero_by_the_decay(kind: str) -> None:
    start = torch.tensor([1.0, 2.0])
    plain, decayed = moved(kind)[0] - start, moved(kind, weight_decay=0.5)[0] - start
    pull = decayed - plain
    if kind.endswith("adam"):
        # Added to the gradient: 1 + 0.5 and -2 + 1 have the signs they had, so the first step is the same.
        assert torch.allclose(pull, torch.zeros(2), atol=1e-5)
        assert not torch.allclose(moved(kind)[1], moved(kind, weight_decay=0.5)[1], atol=1e-3)
        return
    assert torch.allclose(pull, -0.1 * 0.5 * start, atol=1e-5)


@changes("optimizer sgd", "momentum", "nesterov")
def test_so_much_of_the_last_step_is_taken_again_and_perhaps_ahead(kind: str) -> None:
    for nesterov in (False, True):
        place, last = torch.tensor([1.0, 2.0]), torch.zeros(2)
        for gradient in torch.tensor(GRADIENTS):
            last = 0.5 * last + gradient
            place = place - 0.1 * (gradient + 0.5 * last if nesterov else last)
        found = moved(kind, momentum=0.5, nesterov=nesterov)[-1]
        assert torch.allclose(found, place, atol=1e-5)


RMS, RECTIFIED, MUONS = "optimizer rmsprop", "optimizer radam", "optimizer muon"
FREES = "optimizer schedule_free_adamw"
START = torch.tensor([1.0, 2.0])


@changes(f"{RMS}, {RECTIFIED}, {MUONS}, {FREES}", "kind", "learning_rate", "weight_decay")
def test_further_kinds_go_as_far_as_their_rate_and_decay(kind: str) -> None:
    way, twice = moved(kind)[0] - START, moved(kind, learning_rate=0.2)[0] - START
    assert torch.allclose(twice, 2 * way, atol=1e-3)
    expected = {
        # The gradient 1, -2 over the root of a tenth of its square; as it is; orthogonal; over its root.
        RMS: [-0.1 / 0.1**0.5, 0.1 / 0.1**0.5],
        RECTIFIED: [-0.1, 0.2],
        MUONS: [-0.031, 0.061],
        FREES: [-0.1, 0.1],
    }[kind]
    assert torch.allclose(way, torch.tensor(expected), rtol=0.3)
    pulled = moved(kind, weight_decay=0.05)[-1]
    assert not torch.allclose(pulled, moved(kind)[-1], atol=1e-4)


@changes(RMS, "alpha", "eps", "momentum", "centered")
def test_rmsprop_goes_by_its_means(kind: str) -> None:
    for alpha, eps, momentum, centered in ((0.5, 0.1, 0.0, False), (0.9, 1e-3, 0.5, True)):
        square, mean, last, place = torch.zeros(2), torch.zeros(2), torch.zeros(2), START
        for gradient in torch.tensor(GRADIENTS):
            square = alpha * square + (1 - alpha) * gradient**2
            mean = alpha * mean + (1 - alpha) * gradient
            spread = square - mean**2 if centered else square
            last = momentum * last + gradient / (spread.sqrt() + eps)
            place = place - 0.1 * last
        options = {"alpha": alpha, "eps": eps, "momentum": momentum, "centered": centered}
        assert torch.allclose(moved(kind, **options)[-1], place, atol=1e-5)


@changes(f"{RECTIFIED}, {FREES}", "beta1", "beta2", "eps")
def test_further_kinds_of_adam_have_its_numbers(kind: str) -> None:
    plain = moved(kind)[-1]
    # Three steps are too few for radam to divide by its second moment, but with a shorter memory it is known.
    for changed in (
        {"beta1": 0.5},
        {"beta2": 0.7} if kind == FREES else {"beta2": 0.9, "eps": 1e-8},
    ):
        found = long(kind, **changed)
        assert not torch.allclose(found, long(kind), atol=1e-3), changed
    assert not torch.allclose(long(kind, eps=1.0), long(kind), atol=1e-3)
    assert torch.isfinite(plain).all()


def long(kind: str, **changed: Any) -> Tensor:
    """Return the weights after as many steps as rectified Adam needs to divide by its second moment."""
    global GRADIENTS
    few, GRADIENTS = GRADIENTS, GRADIENTS * 5
    try:
        return moved(kind, **changed)[-1]
    finally:
        GRADIENTS = few


@changes(RECTIFIED, "decoupled")
def test_the_decay_is_added_to_the_gradient_or_kept_apart(kind: str) -> None:
    apart, added = (moved(kind, weight_decay=0.5, decoupled=one)[0] for one in (True, False))
    # Of the first step, which is plain, both are the same: the decay is a part of the gradient.
    assert torch.allclose(apart, added, atol=1e-5)
    both = [long(kind, weight_decay=0.5, decoupled=one) for one in (True, False)]
    assert not torch.allclose(*both, atol=1e-3)


@changes(MUONS, "momentum", "nesterov", "newton_schulz_steps", "adjust")
def test_a_matrix_moves_by_its_orthogonalised_momentum(kind: str) -> None:
    plain = moved(kind)
    for changed in ({"momentum": 0.1}, {"nesterov": True}, {"newton_schulz_steps": 1}):
        assert not torch.allclose(moved(kind, **changed)[-1], plain[-1], atol=1e-3), changed
    # One row of two: sqrt(max(1, 1 / 2)) is 1, and 0.2 * sqrt(2) is the other factor.
    way, other = plain[0] - START, moved(kind, adjust="match_rms_adamw")[0] - START
    assert torch.allclose(other, 0.2 * math.sqrt(2) * way, atol=1e-3)


@changes(MUONS, "adamw_parameters", "adamw_rate", "beta1", "beta2", "eps")
def test_adamw_moves_what_is_named(kind: str) -> None:
    named = {"adamw_parameters": ["weight"]}
    for changed in ({}, {"beta1": 0.5}, {"beta2": 0.5}, {"eps": 1.0}):
        assert torch.allclose(
            moved(kind, **named, **changed)[-1], moved("optimizer adamw", **changed)[-1], atol=1e-5
        )
    half = moved(kind, **named, adamw_rate=0.5)[-1]
    assert torch.allclose(half, moved("optimizer adamw", learning_rate=0.05)[-1], atol=1e-5)


@changes(FREES, "step_power", "rate_power")
def test_later_iterates_count_more_in_the_mean(kind: str) -> None:
    assert not torch.allclose(moved(kind, step_power=2.0)[-1], moved(kind)[-1], atol=1e-4)
    # At one rate all iterates count alike, whatever the power of the rate.
    assert torch.allclose(moved(kind, rate_power=0.0)[-1], moved(kind)[-1], atol=1e-6)
    rates = iter([0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
    found = [moved_at(kind, rates, rate_power=power) for power in (0.0, 2.0)]
    assert not torch.allclose(*found, atol=1e-4)


def moved_at(kind: str, rates: Any, **changed: Any) -> Tensor:
    """Return the weights after three steps, each at the next of these rates."""
    data = {"kind": kind.split()[1], **FREE, **changed}
    config = validate(_Optimizer, {"section": data}, source="x").section
    flat = FlatParameters(nn.Linear(2, 1, bias=False))
    flat.vectors[0].copy_(START)
    optimizer = Optimizer(config, flat)
    for gradient in GRADIENTS:
        flat.gradients[0].copy_(torch.tensor(gradient))
        optimizer.step(torch.tensor(next(rates)), stays=[None])
    return flat.vectors[0].clone()


# Schedules, from 2 and over 100 steps unless they say otherwise


class _Schedule(StrictConfig):
    section: ScheduleSection
    """One schedule."""


SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {},
    "exponential": {"rate": 0.9, "final": 0.5},
    "inverse": {"rate": 3.0, "final": 0.5},
    "linear": {"final": 0.5, "total_steps": 40},
    "cosine": {"final": 0.5, "total_steps": 40},
    "piecewise": {"points": [[0, 2.0], [10, 4.0], [30, 1.0]]},
    "warm_restarts": {"final": 0.5, "first_period": 8, "period_factor": 2},
}


def scheduled(kind: str, **changed: Any) -> Schedule:
    name = kind.split()[1]
    warmup = {} if name == "one_cycle" else {"warmup_steps": 0}
    data = {"kind": name, **warmup, **{**SCHEDULES, "one_cycle": ONE_CYCLE}[name], **changed}
    return Schedule(
        validate(_Schedule, {"section": data}, source="x").section, initial=2.0, run_steps=100
    )


FORMULAS = {
    "constant": lambda t: 2.0,
    "exponential": lambda t: 2 * 0.9**t + 0.5 * (1 - 0.9**t),
    "inverse": lambda t: 0.5 + 1.5 * 3 / (2 * t + 3),
    "linear": lambda t: 0.5 + 1.5 * (1 - min(t / 40, 1)),
    "cosine": lambda t: 0.5 + 1.5 * 0.5 * (1 + math.cos(math.pi * min(t / 40, 1))),
    "piecewise": lambda t: 2 + 0.2 * t if t < 10 else 4 - 0.15 * (t - 10) if t < 30 else 1.0,
    "warm_restarts": lambda t: _annealed(
        *((t, 8) if t < 8 else (t - 8, 16) if t < 24 else (t - 24, 32))
    ),
}


def _annealed(step: int, period: int) -> float:
    return 0.5 + 1.5 * 0.5 * (1 + math.cos(math.pi * (step % period) / period))


EVERY = ", ".join(f"schedule {name}" for name in SCHEDULES)
FALLING = "schedule exponential, schedule inverse, schedule linear, schedule cosine"
ENDING = "schedule linear, schedule cosine"


@changes(EVERY, "kind")
def test_a_schedule_goes_by_its_formula(kind: str) -> None:
    schedule, formula = scheduled(kind), FORMULAS[kind.split()[1]]
    assert [schedule(t) for t in range(50)] == pytest.approx([formula(t) for t in range(50)])


@changes(EVERY, "warmup_steps")
def test_a_schedule_rises_in_a_line_before_it_begins(kind: str) -> None:
    # The steps of one with an end include its warm-up.
    longer = {"total_steps": 44} if "total_steps" in SCHEDULES[kind.split()[1]] else {}
    warm, cold = scheduled(kind, warmup_steps=4, **longer), scheduled(kind)
    assert [warm(t) for t in range(4)] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert [warm(t + 4) for t in range(50)] == pytest.approx([cold(t) for t in range(50)])


@changes(FALLING, "final")
def test_a_schedule_approaches_its_final_value(kind: str) -> None:
    for final in (0.25, 1.5):
        values = [scheduled(kind, final=final)(t) for t in (0, 20, 50, 10**6)]
        assert values[0] == 2.0
        assert values == sorted(values, reverse=True)
        assert values[-1] == pytest.approx(final, abs=1e-5)


@changes(ENDING, "total_steps")
def test_a_schedule_takes_so_many_steps_or_the_whole_run(kind: str) -> None:
    for total in (10, 40):
        schedule = scheduled(kind, total_steps=total)
        assert schedule(total - 1) > 0.5
        assert schedule(total) == schedule(total + 5) == 0.5
    run_long = scheduled(kind, total_steps=None)
    assert run_long(99) > 0.5
    assert run_long(100) == 0.5


@changes("schedule exponential", "rate")
def test_such_a_share_of_the_distance_remains_after_each_step(kind: str) -> None:
    for rate in (0.5, 0.9):
        values = [scheduled(kind, rate=rate)(t) - 0.5 for t in range(5)]
        assert [b / a for a, b in itertools.pairwise(values)] == pytest.approx([rate] * 4)


@changes("schedule inverse", "rate")
def test_the_larger_the_rate_the_slower_it_falls(kind: str) -> None:
    slow, fast = scheduled(kind, rate=30.0, final=0.0), scheduled(kind, rate=3.0, final=0.0)
    assert slow(10) > fast(10)
    assert [fast(t) for t in range(5)] == pytest.approx([3 / (t + 1.5) for t in range(5)])


@changes("schedule piecewise", "points")
def test_it_goes_from_point_to_point(kind: str) -> None:
    schedule = scheduled(kind, points=[[0, 2.0], [4, 0.0]])
    assert [schedule(t) for t in range(6)] == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0, 0.0])


@changes("schedule warm_restarts", "final", "first_period", "period_factor")
def test_each_period_anneals_from_the_initial_towards_the_final_value(kind: str) -> None:
    schedule = scheduled(kind, final=1.0, first_period=4, period_factor=3)
    starts = [t for t in range(60) if schedule(t) == 2.0]
    assert starts == [0, 4, 16, 52]
    assert min(schedule(t) for t in range(60)) == pytest.approx(1.0, abs=0.01)
    assert schedule(3) > schedule(15) > schedule(51) > 1.0


ONE_CYCLE: dict[str, Any] = {
    "peak": 4.0, "final": 0.5, "rising_share": 0.5, "shape": "linear", "three_phases": False,
    "total_steps": 10,
}  # fmt: skip


@changes("schedule one_cycle", *ONE_CYCLE, "kind")
def test_one_cycle_rises_to_its_peak_and_falls_to_its_final_value(kind: str) -> None:
    plain = [2.0, 2.5, 3.0, 3.5, 4.0, 3.3, 2.6, 1.9, 1.2, 0.5, 0.5]
    assert [scheduled(kind)(t) for t in range(11)] == pytest.approx(plain)
    assert max(scheduled(kind, peak=6.0)(t) for t in range(11)) == 6.0
    assert scheduled(kind, final=0.1)(9) == pytest.approx(0.1)
    assert scheduled(kind, rising_share=0.3)(2) == pytest.approx(4.0)
    assert scheduled(kind, shape="cosine")(1) == pytest.approx(3 - math.cos(math.pi / 4))
    three = scheduled(kind, three_phases=True, rising_share=0.4)
    assert [three(3), three(6), three(9)] == pytest.approx([4.0, 2.0, 0.5])
    assert scheduled(kind, total_steps=20)(9) == pytest.approx(4.0)
    assert scheduled(kind, total_steps=None)(99) == pytest.approx(0.5)


# Networks of agents, and models

MLP = {"kind": "mlp", "widths": [6, 5], "activation": "relu", "layer_norm": False, "init": "torch"}
CNN = {
    "kind": "cnn", "channels": [3, 4], "kernels": [3, 2], "strides": [2, 1], "width": 7,
    "activation": "relu", "init": "torch", "channels_last": True, "scale": 255.0,
}  # fmt: skip
NET_MLP, NET_CNN, NETS = "network mlp", "network cnn", "network mlp, network cnn"
MODEL_MLP, MODEL_CNN, MODELS = "model mlp", "model cnn", "model mlp, model cnn"
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


def body(kind: str, **changed: Any) -> Any:
    """Return a body for rows of four numbers, or for images of 12 x 10 x 2."""
    torch.manual_seed(0)
    data = {**(CNN if "cnn" in kind else MLP), **changed}
    shape = (12, 10, 2) if "cnn" in kind and data["channels_last"] else (2, 12, 10)
    section = find("network", data["kind"]).Config.model_validate(data)
    return make_body(section, shape if "cnn" in kind else (4,))


def model(kind: str, **changed: Any) -> Any:
    torch.manual_seed(0)
    whole: dict[str, Any] = {
        "kind": kind.split()[1],
        "outputs": 3,
        "activation": "relu",
        "dropout": 0.0,
    }
    if "cnn" in kind:
        whole |= {"channels": 2, "height": 8, "width": 4, "blocks": [4, 6]}
    else:
        whole |= {"inputs": 5, "widths": [6, 7], "layer_norm": False}
    found = find("model", whole["kind"])
    return found(found.Config.model_validate({**whole, **changed}))


def layers(network: nn.Module, kind: type) -> list[Any]:
    return [layer for layer in network.modules() if isinstance(layer, kind)]


@changes(NETS, "kind")
def test_a_body_is_of_the_kind_that_is_named(kind: str) -> None:
    assert len(layers(body(kind), nn.Conv2d)) == (2 if "cnn" in kind else 0)
    assert len(layers(body(kind), nn.Linear)) == (1 if "cnn" in kind else 2)


@changes(NET_MLP, "widths")
def test_hidden_layers_have_these_widths(kind: str) -> None:
    sizes = [(layer.in_features, layer.out_features) for layer in layers(body(kind), nn.Linear)]
    assert sizes == [(4, 6), (6, 5)]
    assert body(kind, widths=[9]).num_features == 9
    assert body(kind, widths=[]).num_features == 4


@changes(NETS, "activation")
def test_this_activation_follows_every_layer(kind: str) -> None:
    for name, made in ACTIVATIONS.items():
        assert len(layers(body(kind, activation=name), made)) == (3 if "cnn" in kind else 2)
    given = torch.rand(1, 12, 10, 2) if "cnn" in kind else torch.randn(1, 4)
    assert body(kind, activation="relu")(given).min() >= 0
    assert body(kind, activation="tanh")(given).abs().max() <= 1


@changes(NET_MLP, "layer_norm")
def test_hidden_layers_are_normalised_before_their_activation(kind: str) -> None:
    assert [n.normalized_shape for n in layers(body(kind, layer_norm=True), nn.LayerNorm)] == [
        (6,),
        (5,),
    ]
    assert layers(body(kind), nn.LayerNorm) == []


@changes(NETS, "init")
def test_weights_are_drawn_as_torch_does_or_orthogonal(kind: str) -> None:
    for layer in layers(body(kind, init="orthogonal"), nn.Linear):
        assert not layer.bias.any()
        wide = layer.weight if layer.weight.shape[0] <= layer.weight.shape[1] else layer.weight.T
        assert torch.allclose(wide @ wide.T, 2 * torch.eye(len(wide)), atol=1e-4)
    assert all(layer.bias.any() for layer in layers(body(kind), nn.Linear))


@changes(NET_CNN, "channels", "kernels", "strides", "width")
def test_convolutions_and_the_dense_layer_have_these_shapes(kind: str) -> None:
    found = [(c.out_channels, c.kernel_size, c.stride) for c in layers(body(kind), nn.Conv2d)]
    assert found == [(3, (3, 3), (2, 2)), (4, (2, 2), (1, 1))]
    assert body(kind).num_features == 7
    other = body(kind, channels=[5], kernels=[4], strides=[3], width=8)
    assert [(c.out_channels, c.kernel_size, c.stride) for c in layers(other, nn.Conv2d)] == [
        (5, (4, 4), (3, 3))
    ]
    assert other(torch.zeros(1, 12, 10, 2)).shape == (1, 8)


@changes(NET_CNN, "channels_last")
def test_images_have_their_channels_last_or_first(kind: str) -> None:
    last, first = body(kind), body(kind, channels_last=False)
    image = torch.randint(256, (1, 12, 10, 2), dtype=torch.uint8)
    assert torch.allclose(last(image), first(image.permute(0, 3, 1, 2)), atol=1e-6)


@changes(NET_CNN, "scale")
def test_pixels_are_divided_by_the_scale(kind: str) -> None:
    image = torch.rand(1, 12, 10, 2)
    assert torch.allclose(
        body(kind, scale=255.0)(255 * image), body(kind, scale=1.0)(image), atol=1e-5
    )


@changes(MODELS, "kind", "outputs")
def test_a_model_is_of_its_kind_and_gives_so_many_numbers(kind: str) -> None:
    inputs = torch.zeros(4, 2, 8, 4) if "cnn" in kind else torch.zeros(4, 5)
    assert model(kind)(inputs).shape == (4, 3)
    assert model(kind, outputs=9)(inputs).shape == (4, 9)
    assert bool(layers(model(kind), nn.Conv2d)) == ("cnn" in kind)


@changes(MODELS, "activation")
def test_this_activation_stands_in_the_model(kind: str) -> None:
    for name, made in ACTIVATIONS.items():
        assert len(layers(model(kind, activation=name), made)) == 2


@changes(MODELS, "dropout")
def test_such_a_share_is_silenced_while_training(kind: str) -> None:
    inputs = torch.randn(64, 2, 8, 4) if "cnn" in kind else torch.randn(64, 5)
    silenced, plain = model(kind, dropout=0.5), model(kind)
    assert [layer.p for layer in layers(silenced, nn.Dropout) if layer.p] == [0.5] * (
        1 if "cnn" in kind else 2
    )
    assert not torch.equal(silenced(inputs), silenced(inputs))
    assert torch.equal(silenced.eval()(inputs), silenced.eval()(inputs))
    assert torch.equal(plain(inputs), plain(inputs))


@changes(MODEL_MLP, "inputs", "widths", "layer_norm")
def test_the_layers_of_an_mlp_have_these_shapes(kind: str) -> None:
    sizes = [(one.in_features, one.out_features) for one in layers(model(kind), nn.Linear)]
    assert sizes == [(5, 6), (6, 7), (7, 3)]
    other = model(kind, inputs=2, widths=[4], layer_norm=True)
    assert [(one.in_features, one.out_features) for one in layers(other, nn.Linear)] == [
        (2, 4),
        (4, 3),
    ]
    assert (len(layers(other, nn.LayerNorm)), layers(model(kind), nn.LayerNorm)) == (1, [])


@changes(MODEL_CNN, "channels", "height", "width", "blocks")
def test_the_blocks_of_a_cnn_have_these_shapes(kind: str) -> None:
    found = [(c.in_channels, c.out_channels) for c in layers(model(kind), nn.Conv2d)]
    assert found == [(2, 4), (4, 6)]
    # Every block halves the image: 8 x 4 becomes 2 x 1.
    assert layers(model(kind), nn.Linear)[0].in_features == 6 * 2 * 1
    other = model(kind, channels=1, height=4, width=12, blocks=[5])
    assert layers(other, nn.Linear)[0].in_features == 5 * 2 * 6
    # A row is shaped to channels x height x width.
    assert other(torch.zeros(3, 48)).shape == (3, 3)


# Data sets

DATASETS = {"digits": 1797, "wine": 178, "breast_cancer": 569, "diabetes": 442, "synthetic": 400}
SYNTHETIC: dict[str, Any] = {
    "examples": 400,
    "columns": 8,
    "informative": 4,
    "redundant": 2,
    "class_shares": [0.5, 0.3, 0.2],
    "clusters_per_class": 2,
    "separation": 2.0,
    "flipped_labels": 0.0,
    "table_seed": 0,
}
EVERY_DATASET = ", ".join(f"dataset {name}" for name in DATASETS)


def load(kind: str, **changed: Any) -> Any:
    whole: dict[str, Any] = {
        "validation_fraction": 0.1, "test_fraction": 0.2, "standardise": False
    }  # fmt: skip
    whole |= SYNTHETIC if kind == "dataset synthetic" else {}
    found = find("dataset", kind.split()[1])
    config = found.Config.model_validate({"kind": kind.split()[1], **whole, **changed})
    return found(config).load(torch.Generator().manual_seed(0))


@changes(EVERY_DATASET, "kind", "validation_fraction", "test_fraction")
def test_a_data_set_is_divided_by_these_shares(kind: str) -> None:
    name = kind.split()[1]
    count = DATASETS[name]
    assert load(kind).name == name
    for validation, test in ((0.1, 0.2), (0.3, 0.1)):
        parts = load(kind, validation_fraction=validation, test_fraction=test)
        sizes = [len(part) for part in (parts.validation, parts.test, parts.train)]
        assert sizes[:2] == [round(count * validation), round(count * test)]
        assert sum(sizes) == count
    assert load(kind, validation_fraction=0.0).validation is None


@changes(EVERY_DATASET, "standardise")
def test_columns_have_mean_0_and_deviation_1_where_it_is_asked_for(kind: str) -> None:
    inputs = load(kind, standardise=True).train.tensors[0].flatten(1)
    raw = load(kind).train.tensors[0].flatten(1)
    varies = raw.std(0) > 0
    assert torch.allclose(inputs[:, varies].mean(0), torch.zeros(int(varies.sum())), atol=1e-4)
    assert torch.allclose(inputs[:, varies].std(0), torch.ones(int(varies.sum())), atol=1e-3)
    assert not torch.allclose(raw[:, varies].std(0), torch.ones(int(varies.sum())), atol=1e-3)


def drawn(**changed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all inputs and classes of a synthetic table, in the order in which they were drawn."""
    none = {"validation_fraction": 0.0, "test_fraction": 0.0}
    inputs, classes = load("dataset synthetic", **none, **changed).train.tensors
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0)).argsort()
    return inputs[order], classes[order]


@changes("dataset synthetic", "examples", "columns", "table_seed")
def test_a_synthetic_table_has_this_size_and_is_drawn_by_this_seed(kind: str) -> None:
    inputs, classes = drawn(examples=150, columns=9)
    assert (inputs.shape, classes.shape) == ((150, 9), (150,))
    assert torch.equal(drawn()[0], drawn()[0])
    assert not torch.equal(drawn(table_seed=1)[0], drawn()[0])


@changes("dataset synthetic", "informative", "redundant")
def test_redundant_columns_are_sums_of_informative_ones_and_the_rest_is_noise(kind: str) -> None:
    for informative, redundant, rank in ((4, 4, 4), (5, 3, 5), (4, 2, 6)):
        inputs, _ = drawn(informative=informative, redundant=redundant)
        scales_D = torch.linalg.svdvals(inputs - inputs.mean(0))
        # Two of the last table's eight columns are noise, so they add to the rank.
        assert int((scales_D > 1e-2).sum()) == rank
    for informative in (4, 5):
        inputs, _ = drawn(informative=informative, redundant=0, separation=8.0)
        # Noise has a deviation of 1; informative columns are wide, their clusters lying far apart.
        assert int((inputs.std(0) > 2).sum()) == informative


@changes("dataset synthetic", "class_shares")
def test_classes_have_these_shares_on_any_scale(kind: str) -> None:
    for shares in ([0.5, 0.3, 0.2], [5.0, 3.0, 2.0]):
        counts = drawn(class_shares=shares)[1].bincount()
        assert [
            abs(int(count) - want) <= 2 for count, want in zip(counts, (200, 120, 80), strict=True)
        ]
    assert drawn(class_shares=[1.0, 1.0])[1].max() == 1


@changes("dataset synthetic", "clusters_per_class", "separation", "flipped_labels")
def test_what_makes_a_synthetic_table_hard(kind: str) -> None:
    def error(**changed: Any) -> float:
        """Return how often the nearest class mean is the wrong one."""
        inputs, classes = drawn(examples=2000, clusters_per_class=1, **changed)
        means = torch.stack([inputs[classes == one].mean(0) for one in range(3)])
        return float((torch.cdist(inputs, means).argmin(1) != classes).double().mean())

    assert error(separation=4.0) < 0.05 < error(separation=0.5)
    # A random label is right by chance with one of three.
    assert 0.15 < error(separation=4.0, flipped_labels=0.3) < 0.3

    # By their first moments alone: one cluster a class lies on one corner, two lie on two.
    def width(clusters: int) -> float:
        inputs, classes = drawn(clusters_per_class=clusters, separation=8.0)
        return float(inputs[classes == 0].std(0).max())

    assert width(1) < 6 < width(2)


# Loggers

WRITTEN = {"csv": "metrics.csv", "jsonl": "metrics.jsonl", "tensorboard": "events/*"}


@changes("logger csv, logger jsonl, logger tensorboard, logger console", "kind")
def test_records_go_where_the_logger_of_this_kind_writes(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = kind.split()[1]
    for backends, is_written in (([{"kind": name}], True), ([], name == "jsonl")):
        storage = LocalStorage(tmp_path / str(len(backends)))
        storage.root.mkdir()
        logger, run = Logger({"backends": backends}), Run()
        logger.open(storage)
        run.counters["opt_steps"] = 3
        logger.log("train/loss", 0.25)
        logger.write(run)
        logger.close()
        storage.close()
        if name == "console":
            assert ("opt_steps 3  train/loss 0.25" in capsys.readouterr().err) == is_written
        else:
            assert bool(list(storage.root.glob(WRITTEN[name]))) == is_written
