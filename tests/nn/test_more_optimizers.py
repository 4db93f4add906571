"""RMSprop, RAdam, Muon and schedule-free AdamW take the steps of torch's own, or of a slow version."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import LudusError
from ludus.nn.engines.tape import Taped
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.optimizers.muon import Muon
from ludus.nn.optimizers.radam import RAdam
from ludus.nn.optimizers.rmsprop import RmsProp
from ludus.nn.optimizers.schedule_free_adamw import ScheduleFreeAdamW

RATE = 0.02
RMSPROP = {"kind": "rmsprop", "learning_rate": RATE, "alpha": 0.9, "eps": 1e-6}
RADAM = {"kind": "radam", "learning_rate": RATE, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6}
MUON = {
    "kind": "muon", "learning_rate": RATE, "momentum": 0.9, "nesterov": True, "newton_schulz_steps": 5,
    "adjust": "original", "adamw_parameters": ["2"], "adamw_rate": 0.5, "beta1": 0.8, "beta2": 0.95,
    "eps": 1e-6, "weight_decay": 0.1,
}  # fmt: skip
FREE = {
    "kind": "schedule_free_adamw", "learning_rate": RATE, "beta1": 0.9, "beta2": 0.95, "eps": 1e-6,
    "weight_decay": 0.1, "step_power": 0.0, "rate_power": 2.0,
}  # fmt: skip
CASES: dict[str, OptimizerConfig] = {
    "rmsprop": RmsProp(**RMSPROP, momentum=0.0, centered=False, weight_decay=0.0),
    "rmsprop centered": RmsProp(**RMSPROP, momentum=0.0, centered=True, weight_decay=0.1),
    "rmsprop with momentum": RmsProp(**RMSPROP, momentum=0.7, centered=True, weight_decay=0.1),
    "radam": RAdam(**RADAM, weight_decay=0.1, decoupled=False),
    "radam decoupled": RAdam(**RADAM, weight_decay=0.1, decoupled=True),
    "muon": Muon(**MUON),
    "muon as adamw": Muon(**{**MUON, "adjust": "match_rms_adamw", "nesterov": False}),
    "muon of all": Muon(**{**MUON, "adamw_parameters": []}),
    "schedule-free": ScheduleFreeAdamW(**FREE),
    "schedule-free by steps": ScheduleFreeAdamW(**{**FREE, "step_power": 1.5, "rate_power": 1.0}),
}
each_case = pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())


class Slow(torch.optim.Optimizer):
    """Schedule-free AdamW with its three points written out; the parameters are y."""

    def __init__(self, params: Any, config: ScheduleFreeAdamW) -> None:
        super().__init__(params, {"lr": config.learning_rate})
        self.config, self.total, self.most, self.t = config, 0.0, 0.0, 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        config, self.t = self.config, self.t + 1
        lr = self.param_groups[0]["lr"]
        self.most = max(self.most, lr)
        counts = self.t**config.step_power * self.most**config.rate_power
        self.total += counts
        share = counts / self.total
        for group in self.param_groups:
            for y in group["params"]:
                assert y.grad is not None
                state = self.state[y]
                if not state:
                    state |= {"x": y.clone(), "z": y.clone(), "v": torch.zeros_like(y)}
                state["v"] = config.beta2 * state["v"] + (1 - config.beta2) * y.grad**2
                root = (state["v"] / (1 - config.beta2**self.t)).sqrt() + config.eps
                state["z"] = state["z"] - lr * (y.grad / root + config.weight_decay * y)
                state["x"] = (1 - share) * state["x"] + share * state["z"]
                y.copy_((1 - config.beta1) * state["z"] + config.beta1 * state["x"])


def by_torch(config: Any, module: nn.Module) -> list[tuple[torch.optim.Optimizer, float]]:
    """Return the optimizers of torch that move all parameters, and the factor of the rate of each."""
    if isinstance(config, RmsProp):
        options: dict[str, Any] = {"alpha": config.alpha, "eps": config.eps}
        options |= {"momentum": config.momentum, "centered": config.centered}
        found = torch.optim.RMSprop(
            module.parameters(), lr=1.0, weight_decay=config.weight_decay, **options
        )
        return [(found, 1.0)]
    if isinstance(config, RAdam):
        rectified = torch.optim.RAdam(
            module.parameters(), lr=1.0, betas=(config.beta1, config.beta2), eps=config.eps,
            weight_decay=config.weight_decay, decoupled_weight_decay=config.decoupled,
        )  # fmt: skip
        return [(rectified, 1.0)]
    if isinstance(config, ScheduleFreeAdamW):
        return [(Slow(module.parameters(), config), 1.0)]
    matrices, others = [], []
    for name, parameter in module.named_parameters():
        is_left = parameter.ndim != 2 or name.split(".")[0] in config.adamw_parameters
        (others if is_left else matrices).append(parameter)
    muon = torch.optim.Muon(
        matrices, lr=1.0, weight_decay=config.weight_decay, momentum=config.momentum,
        nesterov=config.nesterov, ns_steps=config.newton_schulz_steps, adjust_lr_fn=config.adjust,
    )  # fmt: skip
    adamw = torch.optim.AdamW(
        others, lr=1.0, betas=(config.beta1, config.beta2), eps=config.eps,
        weight_decay=config.weight_decay,
    )  # fmt: skip
    return [(muon, 1.0), (adamw, config.adamw_rate)]


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2))


Loss = Callable[[Any], tuple[Tensor, None]]


def losses(count: int = 20) -> list[Loss]:
    generator = torch.Generator().manual_seed(5)

    def make() -> Loss:
        inputs = torch.randn(8, 4, generator=generator)
        targets = torch.randn(8, 2, generator=generator)
        return lambda forward: (nn.functional.mse_loss(forward(inputs), targets), None)

    return [make() for _ in range(count)]


def rate(step: int) -> float:
    """Return a rate that rises, then falls."""
    return RATE * min(step + 1, 5) / 5 / (1 + step / 20)


def reference(config: Any, *, limit: float | None) -> nn.Module:
    module = network()
    optimizers = by_torch(config, module)
    for step, loss_fn in enumerate(losses()):
        module.zero_grad()
        loss_fn(module)[0].backward()
        if limit is not None:
            nn.utils.clip_grad_norm_(module.parameters(), limit)
        for optimizer, factor in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate(step) * factor
            optimizer.step()
    return module


def assert_same(learner: Learner, module: nn.Module, config: Any) -> None:
    found = learner.flat.by_name(learner.flat.vectors)
    # Newton-Schulz is in bfloat16, so a last bit of the gradient may change a step by a hundredth of it.
    near = (
        {"rtol": 1e-3, "atol": 5e-4} if isinstance(config, Muon) else {"rtol": 1e-4, "atol": 3e-6}
    )
    torch.testing.assert_close(found, {k: v.detach() for k, v in module.named_parameters()}, **near)


@pytest.mark.parametrize("limit", [None, 0.3])
@each_case
def test_twenty_steps_end_where_torchs_own_end(config: Any, limit: float | None) -> None:
    learner, expected = (
        Learner(network(), config, max_grad_norm=limit),
        reference(config, limit=limit),
    )
    for step, loss_fn in enumerate(losses()):
        learner.step(loss_fn, torch.tensor(rate(step)))
    assert_same(learner, expected, config)
    moved = (
        learner.flat.by_name(learner.flat.vectors)["0.weight"] - network().state_dict()["0.weight"]
    )
    assert moved.abs().mean() > 0.01


def test_a_matrix_that_lies_transposed_in_memory_is_orthogonalised_as_it_is() -> None:
    config = CASES["muon of all"]
    found = []
    for is_transposed in (False, True):
        module = network()
        if is_transposed:
            weight = module[0].weight  # type: ignore[index]
            weight.data = weight.data.t().contiguous().t()
        learner = Learner(module, config, max_grad_norm=None)
        for step, loss_fn in enumerate(losses()):
            learner.step(loss_fn, torch.tensor(rate(step)))
        found.append(learner.flat.by_name(learner.flat.vectors)["0.weight"])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=5e-4)


@each_case
def test_a_compiled_and_a_taped_update_take_the_same_steps(config: Any) -> None:
    # All cases compile the same lines, of which torch keeps a few versions only.
    torch._dynamo.reset()
    plain, traced, taped = (Learner(network(), config, max_grad_norm=0.3) for _ in range(3))
    inputs, targets = torch.randn(8, 4), torch.randn(8, 2)

    def of(learner: Learner) -> Callable[[Tensor, Tensor], Tensor]:
        def update(given: Tensor, lr: Tensor) -> Tensor:
            def loss_fn(forward: Any) -> tuple[Tensor, Tensor]:
                loss = nn.functional.mse_loss(forward(given), targets)
                return loss, loss.detach()

            return learner.step(loss_fn, lr)[0]

        return update

    by_traced = torch.compile(of(traced), backend="eager", fullgraph=True)
    by_tape = Taped(of(taped))
    for step in range(8):
        lr = torch.tensor(rate(step))
        of(plain)(inputs, lr)
        by_traced(inputs, lr)
        by_tape(inputs, lr)
    near = (
        {"rtol": 1e-3, "atol": 5e-4} if isinstance(config, Muon) else {"rtol": 1e-4, "atol": 1e-5}
    )
    torch.testing.assert_close(traced.flat.vectors, plain.flat.vectors, **near)
    assert torch.equal(taped.flat.vectors[0], plain.flat.vectors[0])
    assert traced.optimizer.num_steps.item() == 8


@each_case
def test_a_gradient_that_is_not_finite_moves_nothing(config: Any) -> None:
    learner, other = (Learner(network(), config, max_grad_norm=1.0) for _ in range(2))
    for step, loss_fn in enumerate(losses(6)):
        if step == 3:
            before = copy.deepcopy(learner.state_dict())
            bad = learner.step(lambda forward: (forward(torch.full((1, 4), torch.nan)).sum(), None),
                                  torch.tensor(0.9))  # fmt: skip
            assert not torch.isfinite(bad[1])
            torch.testing.assert_close(learner.state_dict(), before, rtol=0, atol=0)
        for each in (learner, other):
            each.step(loss_fn, torch.tensor(rate(step)))
    assert torch.equal(learner.flat.vectors[0], other.flat.vectors[0])


@each_case
def test_groups_have_rates_of_their_own_and_freeze(config: Any) -> None:
    groups = [Group("first", ("0",), rate=0.1), Group("last", ("2",), is_frozen=True)]
    learner = Learner(network(), config, max_grad_norm=None, groups=groups)
    start = copy.deepcopy(learner.state_dict()["weights"])
    learner.step(losses(1)[0], torch.tensor(RATE))
    after = learner.state_dict()["weights"]
    assert torch.equal(after["2.weight"], start["2.weight"])
    whole = Learner(network(), config, max_grad_norm=None)
    whole.step(losses(1)[0], torch.tensor(RATE * 0.1))
    near = (
        {"rtol": 1e-2, "atol": 1e-4} if isinstance(config, Muon) else {"rtol": 1e-5, "atol": 1e-7}
    )
    torch.testing.assert_close(after["0.weight"], whole.state_dict()["weights"]["0.weight"], **near)
    learner.set_frozen("last", False)
    learner.step(losses(1)[0], torch.tensor(RATE))
    assert not torch.equal(learner.state_dict()["weights"]["2.weight"], start["2.weight"])


@pytest.mark.parametrize("grouped", [False, True])
@each_case
def test_a_saved_learner_goes_on_exactly(config: Any, grouped: bool) -> None:
    groups = [Group("first", ("0",), rate=0.5)] if grouped else []
    one, two = (Learner(network(), config, max_grad_norm=0.3, groups=groups) for _ in range(2))
    for step, loss_fn in enumerate(losses(10)):
        if step == 5:
            two.load_state_dict(copy.deepcopy(one.state_dict()))
        one.step(loss_fn, torch.tensor(rate(step)))
        if step >= 5:
            two.step(loss_fn, torch.tensor(rate(step)))
    torch.testing.assert_close(two.state_dict(), one.state_dict(), rtol=0, atol=0)


def test_what_is_evaluated_is_the_mean_of_the_iterates() -> None:
    config = CASES["schedule-free"]
    learner, module = Learner(network(), config, max_grad_norm=None), network()
    ((slow, _),) = by_torch(config, module)
    for step, loss_fn in enumerate(losses()):
        learner.step(loss_fn, torch.tensor(rate(step)))
        module.zero_grad()
        loss_fn(module)[0].backward()
        slow.param_groups[0]["lr"] = rate(step)
        slow.step()
    vectors = learner.optimizer.evaluated
    assert vectors is not None
    found = learner.flat.by_name(vectors)
    expected = {name: slow.state[p]["x"] for name, p in module.named_parameters()}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=3e-6)
    assert not torch.allclose(vectors[0], learner.flat.vectors[0], atol=1e-3)
    learner.optimizer.begin_mean()
    assert torch.equal(learner.optimizer.evaluated[0], learner.flat.vectors[0])  # type: ignore[index]


def test_parameters_that_adamw_should_move_and_that_are_not_there_are_refused() -> None:
    config = Muon(**{**MUON, "adamw_parameters": ["heed"]})
    with pytest.raises(LudusError, match="names 'heed', which no trained parameter"):
        Learner(network(), config, max_grad_norm=None)


def test_weight_decay_leaves_named_parameters_alone() -> None:
    for config in CASES.values():
        decayed: Any = config.replace(weight_decay=0.5)
        plain: Any = config.replace(weight_decay=0.0)
        one = Learner(network(), decayed, max_grad_norm=None, undecayed=["2.bias", "0.weight"])
        two = Learner(network(), plain, max_grad_norm=None)
        for each in (one, two):
            each.step(losses(1)[0], torch.tensor(RATE))
        first, second = one.state_dict()["weights"], two.state_dict()["weights"]
        near = (
            {"rtol": 1e-2, "atol": 1e-3}
            if isinstance(config, Muon)
            else {"rtol": 1e-6, "atol": 1e-7}
        )
        torch.testing.assert_close(first["0.weight"], second["0.weight"], **near)
        torch.testing.assert_close(first["2.bias"], second["2.bias"], **near)
        if not isinstance(config, RmsProp) and not getattr(config, "decoupled", True):
            continue
        assert not torch.allclose(first["2.weight"], second["2.weight"], rtol=1e-5)
