"""The optimizers on a flat vector do what torch's own do on the parameters one by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.flat import FlatParameters
from ludus.nn.optimizer import Adam, Optimizer, Sgd

ADAM = {"learning_rate": 0.03, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6}
CASES: dict[str, Adam | Sgd] = {
    "adam": Adam(kind="adam", weight_decay=0.0, **ADAM),
    "adam with decay": Adam(kind="adam", weight_decay=0.1, **ADAM),
    "adamw": Adam(kind="adamw", weight_decay=0.1, **ADAM),
    "sgd": Sgd(kind="sgd", learning_rate=0.03, momentum=0.0, nesterov=False, weight_decay=0.0),
    "momentum": Sgd(kind="sgd", learning_rate=0.03, momentum=0.9, nesterov=False, weight_decay=0.1),
    "nesterov": Sgd(kind="sgd", learning_rate=0.03, momentum=0.9, nesterov=True, weight_decay=0.1),
}
each_case = pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def losses(module: nn.Module) -> Any:
    generator = torch.Generator().manual_seed(5)
    for _ in range(20):
        inputs = torch.randn(8, 4, generator=generator)
        targets = torch.randn(8, 2, generator=generator)
        yield nn.functional.mse_loss(module(inputs), targets)


def torch_optimizer(config: Adam | Sgd, module: nn.Module) -> torch.optim.Optimizer:
    if isinstance(config, Sgd):
        return torch.optim.SGD(
            module.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            nesterov=config.nesterov,
            weight_decay=config.weight_decay,
        )
    kind = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return kind(
        module.parameters(),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def as_vector(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


@each_case
def test_twenty_steps_end_where_torchs_own_optimizer_ends(config: Adam | Sgd) -> None:
    reference = network()
    theirs = torch_optimizer(config, reference)
    for loss in losses(reference):
        theirs.zero_grad()
        loss.backward()
        theirs.step()

    module = network()
    flat = FlatParameters(module)
    optimizer = Optimizer(config, flat)
    for loss in losses(module):
        loss.backward()
        optimizer.step(config.learning_rate, stays=[None])
        flat.gradients[0].zero_()

    torch.testing.assert_close(as_vector(module), as_vector(reference), atol=1e-7, rtol=1e-6)
    assert not torch.equal(as_vector(module), as_vector(network()))


@each_case
def test_the_arithmetic_for_the_compiler_is_the_same_step(config: Adam | Sgd) -> None:
    module = network()
    flat = FlatParameters(module)
    optimizer = Optimizer(config, flat)
    vector = flat.vectors[0].clone()
    moments = [moment.clone() for moment in optimizer.parts[0].moments]
    rate = torch.tensor(config.learning_rate)
    for num_steps, loss in enumerate(losses(module), start=1):
        loss.backward()
        corrections = optimizer.parts[0].corrections(torch.tensor(float(num_steps)))
        vector, moments = optimizer.parts[0].moved(
            vector, flat.gradients[0], moments, corrections, rate
        )
        optimizer.step(config.learning_rate, stays=[None])
        flat.gradients[0].zero_()

    torch.testing.assert_close(vector, flat.vectors[0], atol=2e-6, rtol=2e-5)


def test_the_first_adam_step_by_hand() -> None:
    """m = 0.2 g, v = 0.05 g^2; corrected they are g and g^2, so the step is the learning rate."""
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(2.0)
    flat = FlatParameters(module)
    optimizer = Optimizer(CASES["adam"], flat)
    flat.gradients[0].fill_(-4.0)
    optimizer.step(0.5, stays=[None])
    assert module.weight.item() == pytest.approx(2.5, abs=1e-6)
    assert [moment.item() for moment in optimizer.parts[0].moments] == pytest.approx([-0.8, 0.8])
    assert optimizer.num_steps.item() == 1


def test_two_nesterov_steps_by_hand() -> None:
    """Momentum 0.5, gradient 1: b = 1, then 1.5; the step looks ahead by g + 0.5 b."""
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(1.0)
    flat = FlatParameters(module)
    config = Sgd(kind="sgd", learning_rate=0.1, momentum=0.5, nesterov=True, weight_decay=0.0)
    optimizer = Optimizer(config, flat)
    for expected in (1.0 - 0.15, 1.0 - 0.15 - 0.175):
        flat.gradients[0].fill_(1.0)
        optimizer.step(0.1, stays=[None])
        assert module.weight.item() == pytest.approx(expected, abs=1e-7)


@each_case
def test_a_step_with_found_inf_changes_nothing(config: Adam | Sgd) -> None:
    flat = FlatParameters(network())
    optimizer = Optimizer(config, flat)
    flat.gradients[0].fill_(1.0)
    optimizer.step(0.1, stays=[torch.tensor(0.0)])
    before = flat.vectors[0].clone(), copy.deepcopy(optimizer.state_dict())
    optimizer.step(0.1, stays=[torch.tensor(1.0)])
    assert torch.equal(flat.vectors[0], before[0])
    assert torch.equal(optimizer.num_steps, before[1]["num_steps"])
    for moment, saved in zip(optimizer.moments, before[1]["moments"], strict=True):
        assert all(torch.equal(flat.by_name(moment)[name], saved[name]) for name in saved)


@each_case
def test_its_state_goes_by_parameter_name_and_goes_on_exactly(config: Adam | Sgd) -> None:
    first = FlatParameters(network())
    one = Optimizer(config, first)
    for step in range(3):
        first.gradients[0].fill_(0.1 * (step + 1))
        one.step(0.1, stays=[None])
    state = copy.deepcopy(one.state_dict())
    assert list(state["moments"][0]) == ["0.weight", "0.bias", "2.weight", "2.bias"]

    second = FlatParameters(network())
    second.vectors[0].copy_(first.vectors[0])
    two = Optimizer(config, second)
    two.load_state_dict(state)
    for flat, optimizer in ((first, one), (second, two)):
        flat.gradients[0].fill_(0.7)
        optimizer.step(0.1, stays=[None])
    assert torch.equal(first.vectors[0], second.vectors[0])


def test_moments_of_another_network_are_refused() -> None:
    saved = Optimizer(CASES["adam"], FlatParameters(nn.Linear(4, 2))).state_dict()
    other = Optimizer(CASES["adam"], FlatParameters(nn.Linear(4, 3)))
    with pytest.raises(
        LudusError, match=r"'moments/0/weight' is .* of \(2, 4\); it must be .* of \(3, 4\)"
    ):
        other.load_state_dict(saved)


def test_moments_may_be_infinite_but_the_count_of_steps_may_not() -> None:
    """The square of a very large gradient is infinite, and the run that has seen one goes on."""
    one = Optimizer(CASES["adam"], FlatParameters(network()))
    one.moments[1][0].fill_(torch.inf)
    state = copy.deepcopy(one.state_dict())
    two = Optimizer(CASES["adam"], FlatParameters(network()))
    two.load_state_dict(state)
    assert torch.equal(two.moments[1][0], one.moments[1][0])
    for count in (torch.inf, torch.nan, -1.0):
        with pytest.raises(LudusError, match="'num_steps' holds a number"):
            two.load_state_dict({**state, "num_steps": torch.tensor(count)})


def test_nesterov_without_momentum_is_refused() -> None:
    sgd = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": True}
    with pytest.raises(ConfigError, match=r"optimizer.*nesterov.*momentum' is 0"):
        ludus.example("supervised").replace(optimizer={**sgd, "weight_decay": 0.0})


@each_case
def test_named_parameters_can_be_left_out_of_the_weight_decay(config: Adam | Sgd) -> None:
    """As with two parameter groups in torch; the arithmetic for the compiler does the same."""
    config = config.replace(weight_decay=0.3)
    reference = network()
    theirs = torch_optimizer(config, reference)
    named = dict(reference.named_parameters())
    free = [name for name in named if name.endswith("bias")]
    assert 0 < len(free) < len(named)
    (group,) = theirs.param_groups
    theirs.add_param_group({"params": [], "weight_decay": 0.0})
    group["params"] = [p for name, p in named.items() if name not in free]
    theirs.param_groups[1]["params"] = [named[name] for name in free]
    for loss in losses(reference):
        theirs.zero_grad()
        loss.backward()
        theirs.step()

    module = network()
    flat = FlatParameters(module)
    optimizer = Optimizer(config, flat, undecayed=free)
    vector = flat.vectors[0].clone()
    moments = [moment.clone() for moment in optimizer.parts[0].moments]
    rate = torch.tensor(config.learning_rate)
    for num_steps, loss in enumerate(losses(module), start=1):
        loss.backward()
        corrections = optimizer.parts[0].corrections(torch.tensor(float(num_steps)))
        vector, moments = optimizer.parts[0].moved(
            vector, flat.gradients[0], moments, corrections, rate
        )
        optimizer.step(config.learning_rate, stays=[None])
        flat.gradients[0].zero_()
    torch.testing.assert_close(as_vector(module), as_vector(reference), atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(vector, flat.vectors[0], atol=2e-6, rtol=2e-5)
    assert optimizer.num_steps.item() == 20


@pytest.mark.parametrize("kind", ["supervised", "ppo-pendulum", "sac"])
def test_a_weight_decay_that_no_weight_can_have_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"'optimizer.weight_decay' must be .* 1e\+30"):
        ludus.example(kind).replace(**{"optimizer.weight_decay": 1e308})
