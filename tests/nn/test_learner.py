"""A learner takes the steps torch's own optimizer takes, and none along what is not finite."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import LudusError
from ludus.nn.engines import compiled
from ludus.nn.engines.tape import Taped
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam, Sgd
from ludus.nn.target import Target

ADAM = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)
SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


INPUTS = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))


def squares(scale: float = 1.0) -> Callable[[Any], tuple[Tensor, str]]:
    """Return a loss of a network, and something beside it."""

    def loss_fn(forward: Any) -> tuple[Tensor, str]:
        return scale * (forward(INPUTS) - 1).square().mean(), "beside"

    return loss_fn


def state(learner: Learner) -> Any:
    return copy.deepcopy(learner.state_dict())


@pytest.mark.parametrize("limit", [None, 0.05])
def test_a_step_is_that_of_torch(limit: float | None) -> None:
    learner, own = Learner(network(), ADAM, max_grad_norm=limit), network()
    optimizer = torch.optim.Adam(own.parameters(), lr=0.1, betas=(0.9, 0.99), eps=1e-8)
    for step in range(5):
        loss, norm, more = learner.step(squares(), 0.1 / (step + 1))
        optimizer.zero_grad()
        expected = squares()(own)[0]
        expected.backward()
        whole = torch.nn.utils.clip_grad_norm_(own.parameters(), limit or 1e9)
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(norm, whole)
        assert more == "beside"
    found = learner.flat.by_name(learner.flat.vectors)
    torch.testing.assert_close(found, dict(own.state_dict()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("limit", [None, 1.0])
def test_a_gradient_that_is_not_finite_moves_nothing(bad: float, limit: float | None) -> None:
    """Row 10 of the faults; the norm tells, and the next good step is as if nothing had been."""
    learner, other = (Learner(network(), ADAM, max_grad_norm=limit) for _ in range(2))
    for each in (learner, other):
        each.step(squares(), 0.1)
    before = state(learner)
    _, norm, _ = learner.step(squares(bad), 0.1)
    assert not torch.isfinite(norm)
    torch.testing.assert_close(state(learner), before, rtol=0, atol=0)
    for each in (learner, other):
        each.step(squares(), 0.1)
    torch.testing.assert_close(state(learner), state(other), rtol=0, atol=0)


def test_a_learning_rate_out_of_all_proportion_never_makes_a_weight_infinite() -> None:
    torch.manual_seed(0)
    config = SGD.replace(learning_rate=1e38)
    learner = Learner(nn.Linear(3, 2), config, max_grad_norm=None)
    norms = [learner.step(squares(100.0), 1e38)[1].item() for _ in range(4)]
    assert torch.isfinite(learner.flat.vectors[0]).all()
    assert norms[-1] == float("inf") or norms[-1] != norms[-1]


def test_the_frozen_network_lets_a_gradient_through_but_takes_none() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None)
    inputs = INPUTS.clone().requires_grad_()
    learner.frozen(inputs).sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.abs().sum() > 0
    assert not learner.flat.gradients[0].any()


def test_bound_computes_with_other_weights_and_leaves_the_own() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None)
    before = learner.flat.vectors[0].clone()
    assert not learner.bound([torch.zeros_like(before)])(INPUTS).any()
    torch.testing.assert_close(learner.bound([before])(INPUTS), learner(INPUTS))
    assert learner.flat.vectors[0].equal(before)


def test_half_precision_computes_in_half_and_keeps_whole_weights() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None, precision="bfloat16")
    assert learner(INPUTS).dtype == torch.bfloat16
    before = learner.flat.vectors[0].clone()
    learner.step(squares(), 0.1)
    assert learner.flat.vectors[0].dtype == torch.float32
    assert not learner.flat.vectors[0].equal(before)


def test_a_target_follows_by_its_share() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None)
    target, first = Target(learner), learner.flat.vectors[0].clone()
    torch.testing.assert_close(target(INPUTS), learner(INPUTS))
    learner.step(squares(), 0.1)
    assert target.vectors[0].equal(first)
    target.follow(0.25)
    torch.testing.assert_close(target.vectors[0], first + 0.25 * (learner.flat.vectors[0] - first))
    assert not target(INPUTS).requires_grad
    target.follow(1.0)
    assert target.vectors[0].equal(learner.flat.vectors[0])
    torch.testing.assert_close(target(INPUTS), learner(INPUTS).detach())


def test_a_loaded_target_computes_with_what_was_loaded() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None)
    target, other = Target(learner), Target(learner)
    target.vectors[0].mul_(2)
    other.load_state_dict(copy.deepcopy(target.state_dict()))
    torch.testing.assert_close(other(INPUTS), target(INPUTS))


def test_weights_of_another_network_are_refused() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None)
    strange = Learner(nn.Linear(3, 2), ADAM, max_grad_norm=None)
    with pytest.raises(LudusError, match="build the model as it was"):
        learner.load_state_dict(strange.state_dict())


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize(
    "config",
    [
        ADAM,
        ADAM.replace(kind="adamw", weight_decay=0.1),
        SGD.replace(momentum=0.9, nesterov=True),
        SGD.replace(learning_rate=2e3),
    ],
    ids=["adam", "adamw", "momentum", "steep"],
)
def test_a_gradient_that_is_not_finite_moves_nothing_at_all(
    config: Adam | Sgd, limit: float | None, is_recorded: bool
) -> None:
    learner = Learner(network(), config, max_grad_norm=limit)
    rate = torch.tensor(config.learning_rate)

    def update(factor: Tensor) -> Tensor:
        def loss_fn(net: Any) -> tuple[Tensor, tuple[()]]:
            return (net(torch.ones(2, 3)) * factor).mean(), ()

        return learner.step(loss_fn, rate)[1]

    take = Taped(update) if is_recorded else update
    for factor in (1e-3, torch.nan, -1e-3, torch.inf, 1e30, 1e-3):
        before = state(learner)
        norm = take(torch.tensor(factor))
        after = learner.state_dict()
        is_good = abs(factor) < 1
        assert bool(torch.isfinite(norm)) is is_good
        assert (after["optimizer"]["num_steps"] - before["optimizer"]["num_steps"]) == is_good
        if not is_good:
            torch.testing.assert_close(after, before, rtol=0, atol=0)
        else:
            moved = [
                not torch.equal(tensor, before["weights"][name])
                for name, tensor in after["weights"].items()
            ]
            assert any(moved)


def test_a_target_that_takes_all_is_a_copy_whatever_it_was_before() -> None:
    learner = Learner(network(), ADAM, max_grad_norm=None)
    target = Target(learner)
    target.vectors[0].fill_(torch.inf)
    target.follow(1.0)
    assert target.vectors[0].equal(learner.flat.vectors[0])


class AlwaysDropping(nn.Dropout):
    """Dropout in every mode, so that each pass is another sample of the network."""

    def train(self, mode: bool = True) -> Any:
        return super().train(True)


def test_a_layer_that_has_one_mode_alone_stays_in_it() -> None:
    always = AlwaysDropping(0.5)
    learner = Learner(nn.Sequential(nn.Linear(3, 8), always), SGD, max_grad_norm=None)
    for _ in range(2):
        assert always.training
        assert not torch.equal(learner(INPUTS), learner(INPUTS))
        learner.step(squares(), torch.tensor(0.1))


@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_a_traced_step_shortens_the_gradients_that_an_eager_one_does(factor: float) -> None:
    """Those longer than the limit, and no others."""

    def loss_fn(forward: Any) -> tuple[Tensor, Tensor]:
        return squares()(forward)[0], torch.zeros(())

    plain = Learner(network(), SGD, max_grad_norm=None)
    whole = float(plain.step(loss_fn, torch.tensor(0.1))[1])
    ends = []
    for is_traced in (False, True):
        learner = Learner(network(), SGD, max_grad_norm=factor * whole)

        def update(rate: Tensor, learner: Learner = learner) -> Tensor:
            return learner.step(loss_fn, rate)[1]

        if is_traced:
            update = torch.compile(update, backend="eager", fullgraph=True)
        assert float(update(torch.tensor(0.1))) == pytest.approx(whole)
        ends.append(learner.flat.vectors[0])
    torch.testing.assert_close(*ends)
    assert torch.allclose(ends[0], plain.flat.vectors[0]) is (factor > 1)


def rising(learner: Learner, *, num_batches: int) -> Tensor:
    """Take one step from so many batches; return the norm."""
    for _ in range(num_batches - 1):
        learner.accumulate(squares())
    grad_scale = None if num_batches == 1 else torch.tensor(1 / num_batches)
    return learner.step(squares(), torch.tensor(0.1), grad_scale=grad_scale)[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_gathered_batches_are_one_step_along_their_mean(precision: Any) -> None:
    options: dict[str, Any] = {"max_grad_norm": 0.5, "precision": precision, "ema_decay": 0.5}
    one, three = (Learner(network(), ADAM, **options) for _ in range(2))
    for learner in (one, three):
        # Small enough for float16 not to overflow.
        learner.scaling.scale.fill_(16.0 if learner.scaling.is_on else 1.0)
    norms = [rising(one, num_batches=1), rising(three, num_batches=3)]
    torch.testing.assert_close(*norms, rtol=1e-4, atol=0)
    torch.testing.assert_close(one.flat.vectors[0], three.flat.vectors[0], rtol=1e-4, atol=1e-6)
    assert three.optimizer.num_steps.item() == 1
    assert not three.flat.gradients[0].any()


def test_the_mean_weights_and_the_scale_come_back_with_a_learner() -> None:
    def fresh() -> Learner:
        options: dict[str, Any] = {"precision": "float16", "ema_decay": 0.5}
        return Learner(network(), ADAM, max_grad_norm=None, **options)

    one, two = fresh(), fresh()
    for scale in (1.0, 1e6, 1.0, 1.0, 1.0):
        one.step(squares(scale), torch.tensor(0.1))
    two.load_state_dict(state(one))
    assert two.ema is not None
    assert one.ema is not None
    assert torch.equal(two.ema.vectors[0], one.ema.vectors[0])
    assert not torch.equal(two.ema.vectors[0], two.flat.vectors[0])
    assert two.scaling.scale.item() == one.scaling.scale.item() < 2.0**16
    plain = Learner(network(), ADAM, max_grad_norm=None)
    with pytest.raises(LudusError, match="ema"):
        plain.load_state_dict(state(one))


def test_a_short_gradient_is_left_alone_to_the_bit() -> None:
    """One within the limit moves the weights as if there were none."""
    plain, limited = (Learner(network(), SGD, max_grad_norm=limit) for limit in (None, 1e6))
    for learner in (plain, limited):
        learner.step(squares(), torch.tensor(0.1))
    assert torch.equal(plain.flat.vectors[0], limited.flat.vectors[0])


def test_a_schedule_that_rises_is_as_steep_as_its_highest_rate() -> None:
    """The config's own rate is small, yet no weight becomes infinite."""
    torch.manual_seed(0)
    config = SGD.replace(weight_decay=1.0)
    learner = Learner(nn.Linear(3, 2), config, max_grad_norm=None, highest_rate=1e3)
    for _ in range(30):
        norm = learner.step(lambda net: (net(INPUTS).sum(), ()), torch.tensor(1e3))[1]
    assert torch.isfinite(learner.flat.vectors[0]).all()
    assert not torch.isfinite(norm)


def test_a_loss_that_is_not_finite_leaves_the_buffers_though_its_gradient_is() -> None:
    normed = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    learner = Learner(normed, SGD, max_grad_norm=None)
    before = {name: buffer.clone() for name, buffer in normed.named_buffers()}

    def hopeless(forward: Any) -> tuple[Tensor, tuple[()]]:
        return forward(INPUTS).mean() - torch.inf, ()

    learner.accumulate(hopeless)
    learner.step(hopeless, torch.tensor(0.1), grad_scale=torch.tensor(0.5))
    torch.testing.assert_close(dict(normed.named_buffers()), before, rtol=0, atol=0)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_requires_grad_that_was_changed_is_refused_when_the_state_is_saved(is_frozen: bool) -> None:
    module = network()
    first, other = list(module.parameters())[:2]
    first.requires_grad_(False)
    learner = Learner(module, ADAM, max_grad_norm=None)
    learner.state_dict()
    (other if is_frozen else first).requires_grad_(not is_frozen)
    with pytest.raises(LudusError, match=r"requires_grad .* or learner\.set_frozen"):
        learner.state_dict()


class TwoNames(nn.Module):
    """A network one of whose layers is reached by two names, and a weight of which two layers share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.bias = self.first.bias
        self.all = nn.Sequential(self.first, nn.Tanh(), self.second)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.all(x))


def test_a_layer_that_has_two_names_keeps_its_own_weights_when_others_are_used() -> None:
    net = TwoNames()
    learner, own = Learner(net, SGD, max_grad_norm=None), net.first.weight
    others = [torch.ones_like(vector) for vector in learner.flat.vectors]
    expected = TwoNames()
    for parameter in expected.parameters():
        nn.init.ones_(parameter)
    torch.testing.assert_close(learner.bound(others)(INPUTS), expected(INPUTS))
    assert net.first.weight is own
    assert net.second.bias is net.first.bias
    learner.frozen(INPUTS)
    assert net.all[0].weight is own


def test_a_layer_that_has_two_names_learns_alike_when_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    eager, traced = (Learner(TwoNames(), SGD, max_grad_norm=1.0) for _ in range(2))
    rate, own = torch.tensor(0.1), traced.module.first.weight

    class Step:
        def taken(self, rate: Tensor) -> Tensor:
            return traced.step(lambda net: ((net(INPUTS) - 1).square().mean(), ()), rate)[0]

    step = compiled.compile_method(Step().taken, torch.device("cpu"))
    for _ in range(3):
        eager.step(lambda net: ((net(INPUTS) - 1).square().mean(), ()), rate)
        step(rate)
    torch.testing.assert_close(traced.flat.vectors, eager.flat.vectors)
    assert traced.module.first.weight is own


class Rooted(nn.Module):
    """Its loss is 0 while its gradient is not a number, if so wanted; batch norm sees the batch first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor, power: Tensor) -> Tensor:
        return (self.norm(x) * 0).square().sum() ** power


@pytest.mark.parametrize("is_taped", [False, True])
def test_buffers_take_nothing_from_a_step_whose_norm_is_not_finite(is_taped: bool) -> None:
    learner = Learner(Rooted(), ADAM, max_grad_norm=None)

    def step(x: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
        loss, norm, _ = learner.step(lambda forward: (forward(x, power), None), torch.tensor(0.1))
        return loss, norm

    executed: Any = Taped(step) if is_taped else step
    for power in (1.0, 0.5, 1.0, 0.5):
        before = learner.module.norm.running_mean.clone()  # type: ignore[union-attr, operator]
        x = 1 + torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
        loss, norm = executed(x, torch.tensor(power))
        assert loss.item() == 0.0
        assert bool(norm.isfinite()) == (power == 1.0)
        is_kept = not torch.equal(learner.module.norm.running_mean, before)  # type: ignore[union-attr, arg-type]
        assert is_kept == (power == 1.0)
