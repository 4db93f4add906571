"""Groups of parameters learn at rates of their own, are frozen and freed, and come back as they were."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import LudusError
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import ENGINES
from ludus.nn.flat import FlatParameters
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam, Sgd
from ludus.nn.target import Target
from ludus.testing.engine_cases import EngineCase
from ludus.testing.engines import check_engine

CPU = torch.device("cpu")
SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)
ADAM = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1)
CONFIGS = {
    "sgd": SGD.replace(weight_decay=0.1),
    "momentum": SGD.replace(momentum=0.9, nesterov=True),
    "adam": ADAM,
    "adamw": ADAM.replace(kind="adamw"),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
BODY = Group("body", ("body",), rate=0.1)
RATE = torch.tensor(0.1)


class Net(nn.Module):
    """A body and a head; its norm is in neither."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.body(x)))
        return out


def inputs(number: int) -> Tensor:
    return torch.randn(16, 3, generator=torch.Generator().manual_seed(number))


def squares(number: int) -> Callable[[Any], tuple[Tensor, Tensor]]:
    def loss_fn(forward: Any) -> tuple[Tensor, Tensor]:
        return (forward(inputs(number)) - 1).square().mean(), torch.zeros(())

    return loss_fn


def state(learner: Learner) -> Any:
    return copy.deepcopy(learner.state_dict())


def two_weights(*groups: Group, config: Adam | Sgd = SGD, **options: Any) -> Learner:
    """Return a learner of the weights a = 1 and b = 2, whose loss has the gradient (3, 4)."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.tensor([1.0]))
            self.b = nn.Parameter(torch.tensor([2.0]))

        def forward(self) -> Tensor:
            return 3 * self.a + 4 * self.b

    options = {"max_grad_norm": None} | options
    return Learner(Two(), config, groups=groups, **options)


def step(learner: Learner) -> tuple[float, float, float]:
    """Take one step of rate 0.1; return a, b and the norm."""
    norm = learner.step(lambda net: (net().sum(), ()), RATE)[1]
    weights = learner.weights()
    return float(weights["a"]), float(weights["b"]), float(norm)


def test_two_groups_by_hand() -> None:
    """a moves by 0.1 * 0.5 * 3, b by 0.1 * 4; the norm is that of both."""
    assert step(two_weights(Group("half", ("a",), rate=0.5))) == pytest.approx((0.85, 1.6, 5.0))


def test_one_norm_over_both_groups_shortens_both() -> None:
    """A norm of 5 where 1 is allowed leaves a fifth of each gradient."""
    found = step(two_weights(Group("half", ("a",), rate=0.5), max_grad_norm=1.0))
    assert found == pytest.approx((1 - 0.05 * 0.6, 2 - 0.1 * 0.8, 5.0))


def test_a_frozen_group_counts_in_no_norm_and_moves_by_nothing() -> None:
    """Not by weight decay either; of the gradient only 4 is left, and a quarter of it allowed."""
    config = SGD.replace(weight_decay=0.5)
    learner = two_weights(Group("still", ("a",), is_frozen=True), config=config, max_grad_norm=1.0)
    assert step(learner) == pytest.approx((1.0, 2 - 0.1 * (1.0 + 0.5 * 2), 4.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_frozen_group_may_have_a_gradient_that_is_not_finite(bad: float) -> None:
    learner = two_weights(Group("still", ("a",), is_frozen=True))
    learner.step(lambda net: ((learner.module.a * bad + 4 * learner.module.b).sum(), ()), RATE)
    assert learner.weights()["a"].item() == 1.0
    assert learner.weights()["b"].item() == pytest.approx(1.6)
    learner.set_frozen("still", False)
    before = state(learner)
    norm = learner.step(lambda net: ((learner.module.a * bad).sum(), ()), RATE)[1]
    assert not torch.isfinite(norm)
    torch.testing.assert_close(state(learner), before, rtol=0, atol=0)


def theirs(config: Adam | Sgd, net: Net, rates: dict[str, float]) -> torch.optim.Optimizer:
    """Return torch's own optimizer with a group for each part of the network."""
    parts = [
        {"params": list(getattr(net, name).parameters()), "lr": config.learning_rate * rate}
        for name, rate in rates.items()
    ]
    if isinstance(config, Sgd):
        return torch.optim.SGD(
            parts, momentum=config.momentum, nesterov=config.nesterov,
            weight_decay=config.weight_decay,
        )  # fmt: skip
    kind = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    betas = (config.beta1, config.beta2)
    return kind(parts, betas=betas, eps=config.eps, weight_decay=config.weight_decay)


@pytest.mark.parametrize("limit", [None, 0.2])
@each_config
def test_groups_end_where_those_of_torch_end_frozen_for_a_while_too(
    config: Adam | Sgd, limit: float | None
) -> None:
    net, own = Net(), Net()
    optimizer = theirs(config, net, {"body": 0.1, "norm": 1.0, "head": 3.0})
    groups = (BODY, Group("top", ("head.weight", "head.bias"), rate=3.0))
    learner = Learner(own, config, max_grad_norm=limit, groups=groups)
    for number in range(12):
        is_frozen = 4 <= number < 8
        learner.set_frozen("body", is_frozen)
        found = learner.step(squares(number), RATE)
        optimizer.zero_grad()
        squares(number)(net)[0].backward()
        if is_frozen:
            for parameter in net.body.parameters():
                parameter.grad = None
        if limit is not None:
            norm = nn.utils.clip_grad_norm_(net.parameters(), limit)
            torch.testing.assert_close(found[1], norm, rtol=1e-4, atol=0)
        optimizer.step()
        torch.testing.assert_close(own.state_dict(), net.state_dict(), rtol=1e-3, atol=1e-5)
    assert learner.optimizer.num_steps.item() == 12


def test_moments_mean_weights_and_count_of_a_frozen_group_stay() -> None:
    learner = Learner(Net(), ADAM, max_grad_norm=1.0, ema_decay=0.5, groups=[BODY])
    learner.step(squares(0), RATE)
    learner.set_frozen("body", True)
    before = state(learner)
    learner.step(squares(1), RATE)
    after = state(learner)
    assert after["optimizer"]["num_steps"] == {
        "body": torch.tensor(1.0),
        "the rest": torch.tensor(2.0),
    }
    trees = [(after["weights"], before["weights"]), (after["ema"], before["ema"])]
    trees += list(zip(after["optimizer"]["moments"], before["optimizer"]["moments"], strict=True))
    for new, old in trees:
        assert {name for name in new if not torch.equal(new[name], old[name])} == {
            "norm.weight", "norm.bias", "head.weight", "head.bias",
        }  # fmt: skip


@each_config
def test_a_learner_that_comes_back_between_freezing_and_freeing_goes_on_to_the_bit(
    config: Adam | Sgd,
) -> None:
    def fresh() -> Learner:
        return Learner(Net(), config, max_grad_norm=0.5, ema_decay=0.9, groups=[BODY])

    def learn(learner: Learner, numbers: range) -> None:
        for number in numbers:
            if number == 3:
                learner.set_frozen("body", True)
            if number == 7:
                learner.set_frozen("body", False)
            learner.step(squares(number), RATE)

    straight, first = fresh(), fresh()
    learn(straight, range(10))
    learn(first, range(5))
    second = fresh()
    second.load_state_dict(state(first))
    assert second.flat.frozen == {"body": True, "the rest": False}
    learn(second, range(5, 10))
    torch.testing.assert_close(state(second), state(straight), rtol=0, atol=0)


def test_a_group_of_everything_learns_as_no_group_does_to_the_bit() -> None:
    plain = Learner(Net(), ADAM, max_grad_norm=0.5, ema_decay=0.9)
    grouped = Learner(Net(), ADAM, max_grad_norm=0.5, ema_decay=0.9, groups=[Group("all", ("",))])
    for number in range(5):
        for learner in (plain, grouped):
            learner.step(squares(number), RATE)
    for key in ("weights", "ema"):
        torch.testing.assert_close(state(plain)[key], state(grouped)[key], rtol=0, atol=0)
    assert "frozen" not in state(plain)
    assert state(plain)["optimizer"]["num_steps"].item() == 5


class Owner:
    """An update of two groups, one of which is frozen in its second half."""

    def __init__(self) -> None:
        groups = (BODY, Group("top", ("head",), rate=2.0))
        options: dict[str, Any] = {"max_grad_norm": 0.5, "ema_decay": 0.9, "groups": groups}
        self.learner = Learner(Net(), ADAM.replace(kind="adamw"), **options)

    def learn(self, batch: Tensor) -> Tensor:
        def loss_fn(forward: Any) -> tuple[Tensor, Tensor]:
            return (forward(batch) - 1).square().mean(), torch.zeros(())

        return self.learner.step(loss_fn, RATE)[1]


@pytest.mark.parametrize("name", ["tape", "compiled"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_an_engine_sees_that_a_group_was_frozen(name: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    limits = {"tape": 0.0, "compiled": 1e-4}

    def make() -> EngineCase:
        owner = Owner()
        return EngineCase(owner.learn, [inputs(0)], owner.learner.state_dict, CPU)

    check_engine(ENGINES[name], make, rtol=limits[name], atol=limits[name] / 100)
    eager, executed = Owner(), Owner()
    call = ENGINES[name](executed.learn, CPU)
    for number in range(9):
        for owner in (eager, executed):
            owner.learner.set_frozen("body", 3 <= number < 6)
        before = executed.learner.weights()["body.0.weight"].clone()
        eager.learn(inputs(number))
        call(inputs(number))
        is_still = torch.equal(executed.learner.weights()["body.0.weight"], before)
        assert is_still is (3 <= number < 6)
    found, expected = executed.learner.weights(), eager.learner.weights()
    torch.testing.assert_close(found, expected, rtol=limits[name], atol=limits[name] / 10)


def mixed(second: torch.dtype) -> nn.Module:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2).to(second)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.second(self.first(x).to(second))
            return out

    return Mixed()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_network_of_two_types_learns_as_with_torchs_own_optimizer(
    dtype: torch.dtype, limit: float | None
) -> None:
    net, own = mixed(dtype), mixed(dtype)
    config = SGD.replace(momentum=0.9)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    learner = Learner(own, config, max_grad_norm=limit, ema_decay=0.9)
    for number in range(4):
        learner.step(lambda f, n=number: ((f(inputs(n)) - 1).float().square().mean(), ()), RATE)
        optimizer.zero_grad()
        (net(inputs(number)) - 1).float().square().mean().backward()
        if limit is not None:
            nn.utils.clip_grad_norm_(net.parameters(), limit)
        optimizer.step()
    rtol = 1e-4 if dtype == torch.float64 else 0.05
    torch.testing.assert_close(own.state_dict(), net.state_dict(), rtol=rtol, atol=rtol)
    assert [vector.dtype for vector in learner.flat.vectors] == [torch.float32, dtype]
    again = Learner(mixed(dtype), config, max_grad_norm=limit, ema_decay=0.9)
    again.load_state_dict(state(learner))
    torch.testing.assert_close(state(again), state(learner), rtol=0, atol=0)
    assert state(again)["optimizer"]["num_steps"].item() == 4


def test_no_weight_of_half_precision_becomes_infinite() -> None:
    """60 000 and 0.9 * 10 000 more is past the largest float16, though rate and gradient are not."""
    half = nn.ParameterList([torch.full((2,), 6e4).half(), torch.ones(1)])
    learner = Learner(half, SGD, max_grad_norm=None)
    before = state(learner)
    loss, norm, _ = learner.step(
        lambda f: (-1e4 * half[0].float().sum() + half[1].sum(), ()), 9 * RATE
    )
    assert torch.isfinite(loss)
    assert not torch.isfinite(norm)
    torch.testing.assert_close(state(learner), before, rtol=0, atol=0)


def test_a_target_of_a_learner_with_groups_follows_all_of_them() -> None:
    learner = Learner(Net(), ADAM, max_grad_norm=None, groups=[BODY])
    target = Target(learner)
    learner.step(squares(0), RATE)
    target.follow(0.5)
    assert not torch.allclose(target(inputs(1)), learner(inputs(1)))
    target.follow(1.0)
    torch.testing.assert_close(target(inputs(1)), learner(inputs(1)).detach())


def test_weights_are_saved_by_name_in_the_order_of_the_network_whatever_the_groups() -> None:
    grouped = Learner(Net(), ADAM, max_grad_norm=None, groups=[Group("top", ("head",)), BODY])
    assert list(grouped.weights()) == [name for name, _ in Net().named_parameters()]
    plain = Learner(Net(), ADAM, max_grad_norm=None)
    grouped.step(squares(0), RATE)
    plain.load_weights(copy.deepcopy(grouped.weights()))
    assert torch.equal(plain(inputs(0)), grouped(inputs(0)))


def test_decay_leaves_alone_what_it_should_in_every_group() -> None:
    """AdamW by hand without a gradient: what decays shrinks by 0.1 * rate * 0.1."""
    config = ADAM.replace(kind="adamw")
    biases = [name for name, _ in Net().named_parameters() if name.endswith("bias")]
    learner = Learner(Net(), config, max_grad_norm=None, groups=[BODY], undecayed=biases)
    for part in learner.flat.parts:
        part.vector.fill_(1.0)
    learner.optimizer.step(RATE, stays=[None, None])
    for name, weight in learner.weights().items():
        kept = 1.0 if name in biases else 0.999 if name.startswith("body") else 0.99
        torch.testing.assert_close(weight, torch.full_like(weight, kept))


def test_what_a_network_freezes_itself_is_in_no_group_and_stays() -> None:
    net = Net()
    net.norm.requires_grad_(False)
    learner = Learner(net, ADAM, max_grad_norm=None, groups=[BODY])
    before = {name: p.clone() for name, p in net.norm.named_parameters()}
    learner.step(squares(0), RATE)
    torch.testing.assert_close(dict(net.norm.named_parameters()), before, rtol=0, atol=0)
    assert learner.flat.frozen == {"body": False, "the rest": False}


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([Group("body", ("bdy",))], r"'bdy'.*Did you mean 'body'\?"),
        ([Group("body", ("bod",))], r"'bod'.*Did you mean 'body'\?"),
        ([Group("top", ("head.wieght",))], r"Did you mean 'head.weight'\?"),
        ([BODY, Group("first", ("body.0.bias",))], "'body.0.bias' is in two groups, 'body' and"),
        ([BODY, Group("body", ("head",))], "'body' is the name of two groups"),
        ([Group("the rest", ("head",))], "'the rest' is the name of all that no group names"),
        ([Group("top", ("head",), rate=0.0)], "the rate of group 'top' is 0.0"),
        ([Group("top", ("head",), rate=math.inf)], "the rate of group 'top' is inf"),
        ([Group("top", ())], "group 'top' names no parameter"),
        ([Group("norm", ("norm",))], "'norm', which is not trained"),
    ],
)
def test_groups_that_cannot_be_are_refused_in_a_sentence(groups: Any, told: str) -> None:
    net = Net()
    net.norm.requires_grad_(False)
    with pytest.raises(LudusError, match=told):
        FlatParameters(net, groups)


def test_a_group_that_is_not_there_cannot_be_frozen() -> None:
    learner = Learner(Net(), ADAM, max_grad_norm=None, groups=[BODY])
    with pytest.raises(LudusError, match=r"no group 'bodi'.*Did you mean 'body'\?"):
        learner.set_frozen("bodi", True)
    with pytest.raises(LudusError, match="no group 'body', it has none"):
        Learner(Net(), ADAM, max_grad_norm=None).set_frozen("body", True)


def test_a_state_with_other_groups_is_refused() -> None:
    grouped = Learner(Net(), ADAM, max_grad_norm=None, groups=[BODY])
    other = Learner(Net(), ADAM, max_grad_norm=None, groups=[Group("top", ("head",))])
    with pytest.raises(LudusError, match="frozen"):
        grouped.load_state_dict(Learner(Net(), ADAM, max_grad_norm=None).state_dict())
    with pytest.raises(LudusError, match="frozen/"):
        grouped.load_state_dict(other.state_dict())


def test_a_high_rate_of_one_group_never_makes_a_weight_infinite() -> None:
    """1 * 1e38 * 4 is past the largest float32; neither weights nor EMA move by such a step."""
    steep = Group("steep", ("b",), rate=1e38)
    learner = two_weights(steep, ema_decay=0.5)
    step = learner.step
    assert torch.isfinite(step(lambda net: (net().sum(), ()), torch.tensor(1e-37))[1])
    before = state(learner)
    assert not torch.isfinite(step(lambda net: (net().sum(), ()), torch.tensor(1.0))[1])
    assert before["weights"]["b"].item() == pytest.approx(2 - 40.0)
    torch.testing.assert_close(state(learner), before, rtol=0, atol=0)
