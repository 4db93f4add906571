"""A network starts from earlier weights by name and shape, and learns by prefix as torch's groups do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.config.start import StartConfig
from ludus.core.errors import ConfigError
from ludus.core.states import StateError
from ludus.nn.groups import REST, Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Sgd
from ludus.nn.start import StartTarget, named_in, same_name, start_groups
from tests.nn.test_groups import ADAM, CONFIGS, Net, inputs, squares

RATE = torch.tensor(0.1)


def start(**changed: Any) -> StartConfig:
    whole = {"run": "a", "model": "best", "optimizer": False, "frozen": [], "learning_rates": []}
    return StartConfig(**{**whole, **changed})


def rates(**of: float) -> list[dict[str, Any]]:
    return [{"prefix": prefix.replace("_", "."), "rate": rate} for prefix, rate in of.items()]


def learner_of(section: StartConfig | None, **options: Any) -> Learner:
    net = Net()
    config = options.pop("config", ADAM)
    return Learner(net, config, max_grad_norm=None, groups=start_groups(net, section), **options)


def target_of(learner: Learner, **more: Any) -> StartTarget:
    return StartTarget({"": (learner, same_name)}, **more)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw"])
def test_prefixes_step_as_the_parameter_groups_of_torch(name: str) -> None:
    config = CONFIGS[name]
    learner = learner_of(
        start(frozen=["norm"], learning_rates=rates(body=0.1, body_0_bias=0.5)), config=config
    )
    net = Net()
    groups = [
        {"params": [net.body[0].weight], "lr": 0.01}, {"params": [net.body[0].bias], "lr": 0.05},
        {"params": [*net.head.parameters()], "lr": 0.1},
    ]  # fmt: skip
    decay = config.weight_decay
    if isinstance(config, Sgd):
        options = {"momentum": config.momentum, "nesterov": config.nesterov}
        torchs: Any = torch.optim.SGD(groups, weight_decay=decay, **options)
    else:
        torchs = torch.optim.AdamW(groups, betas=(0.9, 0.99), eps=1e-8, weight_decay=decay)
    net.norm.requires_grad_(False)
    for number in range(4):
        learner.step(squares(number), RATE)
        torchs.zero_grad()
        (net(inputs(number)) - 1).square().mean().backward()
        torchs.step()
    found = learner.weights()
    for key, weight in net.named_parameters():
        assert torch.allclose(found[key], weight, atol=1e-6), key
    assert torch.equal(found["norm.weight"], Net().norm.weight)


def test_a_group_is_divided_and_keeps_its_own_rate_and_its_name() -> None:
    net = Net()
    groups = [Group("body", ("body",), rate=0.5)]
    found = start_groups(net, start(frozen=["body.0.bias"], learning_rates=rates(head=0.1)), groups)
    assert [(one.name, one.rate, one.is_frozen) for one in found] == [
        ("body", 0.5, False), ("body, frozen", 0.5, True), ("rate 0.1", 0.1, False),
    ]  # fmt: skip
    assert start_groups(net, None, groups) == start_groups(net, start(), groups) == groups
    learner = Learner(net, ADAM, max_grad_norm=None, groups=found)
    assert [*learner.flat.frozen] == ["body", "body, frozen", "rate 0.1", REST]


def test_a_mean_of_frozen_weights_is_those_weights() -> None:
    learner = learner_of(start(frozen=["body"]), ema_decay=0.9)
    learner.step(squares(0), RATE)
    assert learner.ema is not None
    means = learner.flat.by_name(learner.ema.vectors)
    assert torch.equal(means["body.0.weight"], Net().body[0].weight)


def test_weights_are_taken_by_name_and_shape_and_the_rest_is_told() -> None:
    learner = learner_of(None)
    head = nn.Linear(8, 5)
    given = {
        "body.0.weight": torch.ones(8, 3), "body.0.bias": torch.ones(8), "head.weight": head.weight.detach(),
        "more": torch.ones(2), "norm.weight": torch.ones(8, dtype=torch.int64),
    }  # fmt: skip
    target = target_of(learner)
    taken = target.fitting(given)
    assert sorted(taken.weights) == ["body.0.bias", "body.0.weight"]
    assert taken.other_shape["head.weight"] == ((5, 8), (2, 8))
    assert taken.only_there == ["more"]
    assert taken.only_here == ["norm.bias", "head.bias"]
    before = learner.weights()["head.weight"].clone()
    target.take(taken)
    assert learner.weights()["body.0.weight"].eq(1).all()
    assert torch.equal(learner.weights()["head.weight"], before)


def test_weights_of_lower_precision_are_taken_and_infinite_ones_refused() -> None:
    learner = learner_of(None)
    target = target_of(learner)
    half = {"body.0.bias": torch.ones(8, dtype=torch.bfloat16)}
    target.take(target.fitting(half))
    assert learner.weights()["body.0.bias"].dtype == torch.float32
    with pytest.raises(StateError, match="finite"):
        target.take(target.fitting({"body.0.bias": torch.full((8,), torch.inf)}))


def test_what_follows_the_weights_is_called_after_them() -> None:
    learner, seen = learner_of(None), list[Tensor]()
    target = target_of(
        learner, then=[lambda: seen.append(learner.weights()["body.0.bias"].clone())]
    )
    target.take(target.fitting({"body.0.bias": torch.ones(8)}))
    assert seen[0].eq(1).all()


@pytest.mark.parametrize("before", [None, ["body"]])
@pytest.mark.parametrize("now", [None, ["head"]])
def test_moments_fit_whichever_groups_either_run_has(
    before: list[str] | None, now: list[str] | None
) -> None:
    one = learner_of(start(frozen=before) if before else None)
    for number in range(3):
        one.step(squares(number), RATE)
    two = learner_of(start(frozen=now) if now else None)
    target_of(two).take_optimizer({"": one.optimizer.state_dict()})
    assert float(two.optimizer.num_steps) == 3
    moments = two.optimizer.state_dict()["moments"][0]
    assert torch.equal(moments["norm.bias"], one.optimizer.state_dict()["moments"][0]["norm.bias"])


def test_a_prefix_is_checked_against_the_names_of_all_networks() -> None:
    learner = learner_of(None)
    target = StartTarget({"q": (learner, named_in("q"))})
    target.check(start(frozen=["q.body"], learning_rates=rates(q=0.1)))
    with pytest.raises(ConfigError, match=r"'start.frozen' names q.bdy, .*Did you mean 'q.body'\?"):
        target.check(start(frozen=["q.bdy"]))
    with pytest.raises(ConfigError, match="freezes every parameter, so nothing would learn"):
        target_of(learner_of(start(frozen=["body", "norm", "head"]))).check(start())
