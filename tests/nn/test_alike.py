"""What an engine could not repeat, or would compute otherwise, is found out at the first update."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import LudusError
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import EngineKey, Subject, choose_engine
from ludus.nn.engines.compiled import NOT_FOLLOWED
from ludus.nn.learner import Learner

CPU = torch.device("cpu")


class Owner:
    """Asks a network without a gradient, as a target is asked."""

    is_repeatable = True

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def update(self, x: Tensor) -> Any:
        with torch.no_grad():
            return self.network(x).clone()


class Attention(nn.Module):
    """Attends to itself."""

    is_repeatable = True

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return out


def executed(wanted: EngineKey, network: nn.Module, told: list[str] | None = None) -> Any:
    owner = Owner(network)
    subject = Subject(owner.update, owner, [network], CPU, lambda: None)
    tell = None if told is None else told.append
    return choose_engine(wanted, subject, is_long=False, tell=tell).by(owner.update)


@pytest.mark.parametrize(
    "make",
    [Attention, lambda: nn.TransformerEncoderLayer(32, 4, batch_first=True)],
    ids=["attention", "encoder layer"],
)
def test_taped_attention_in_eval_mode_is_the_eager_one_to_the_bit(make: Any) -> None:
    """Torch would take another way without a gradient, but not while a tape is made."""
    torch.manual_seed(0)
    network = make().eval()
    eager, tape = executed("eager", network), executed("tape", copy.deepcopy(network))
    for index in range(4):
        x = torch.randn(5, 7, 32, generator=torch.Generator().manual_seed(index))
        assert torch.equal(tape(x), eager(x))
    assert torch.backends.mha.get_fastpath_enabled()


class Drawing(nn.Linear):
    """Says that it is the same each time, and adds a number from outside torch."""

    is_repeatable = True

    def __init__(self, draw: Any) -> None:
        super().__init__(2, 2)
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.draw()


@pytest.mark.parametrize("draw", [random.random, lambda: float(np.random.random())])
def test_a_network_that_draws_from_python_or_numpy_is_not_frozen_at_its_first_draw(
    draw: Any,
) -> None:
    told: list[str] = []
    update = executed("tape", Drawing(draw), told)
    assert len({update(torch.ones(1, 2)).sum().item() for _ in range(4)}) == 4
    assert told == [
        "the update is not taped: it draws from Python's random or from NumPy as it goes, which would be"
        " drawn once only; it is called eagerly"
    ]


def drawn_in_python(x: Tensor) -> Tensor:
    return x + random.random()


def drawn_by_numpy(x: Tensor) -> Tensor:
    return x + float(np.random.random())


@pytest.mark.parametrize("method", [drawn_in_python, drawn_by_numpy])
def test_the_compiler_refuses_what_draws_from_python_or_numpy(method: Any) -> None:
    assert compiled.why_not_traced(method, [torch.ones(2)]) is not None


class Listed(nn.Module):
    """Reads the weights of its second layer from a list of its own."""

    is_repeatable = True

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.kept = [self.second.weight, self.second.bias]
        self.num_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.first(x).relu(), *self.kept)


class Layers(Listed):
    """Keeps layers in a list, which do get other weights."""

    is_repeatable = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = [self.first, self.second]

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        out: Tensor = self.layers[1](self.layers[0](x).relu())
        return out


def learner(network: nn.Module) -> Learner:
    config = ludus.example("supervised").optimizer
    return Learner(network, config, max_grad_norm=None)


def test_a_network_that_cannot_be_asked_with_other_weights_says_so_at_the_first_call() -> None:
    with pytest.raises(LudusError, match="reads weights from a list, a dict or a closure"):
        learner(Listed()).frozen(torch.ones(5, 3))


def test_a_network_that_can_be_asked_with_other_weights_is_tried_without_a_trace() -> None:
    network = Layers()
    own = learner(network)
    x = torch.ones(5, 3, requires_grad=True)
    assert torch.equal(own.frozen(x), network(x))
    assert network.num_calls == 2


class Slopes(nn.Module):
    """Answers with the slope of a potential by its input, as a field of forces is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.potential = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(self.potential(x).sum(), x, create_graph=True)
        return slope


class ListedSlopes(Slopes):
    """Does so with weights that it also keeps in a list of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [*self.potential.parameters()]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.kept[0].sum()


def test_a_network_that_differentiates_by_its_input_can_be_asked_with_other_weights() -> None:
    network, x = Slopes(), torch.ones(5, 3)
    assert torch.equal(learner(network).frozen(x), network(x))
    with pytest.raises(LudusError, match="reads weights from a list"):
        learner(ListedSlopes()).frozen(x)


class Improving:
    """Takes a step with a learner."""

    def __init__(self, own: Learner) -> None:
        self.own = own

    def update(self, x: Tensor) -> Tensor:
        return self.own.step(lambda network: (network(x).square().mean(), x), x.sum())[0]


@pytest.mark.parametrize("kind", [Listed, Layers])
def test_the_compiler_does_not_leave_out_weights_that_a_network_reads_from_a_list(
    kind: type[Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would get no gradient and never learn, in silence."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    own = Improving(learner(kind()))
    why = NOT_FOLLOWED if kind is Listed else None
    assert compiled.why_not_traced(own.update, [torch.ones(5, 3)]) == why
    if why is not None:
        with pytest.raises(LudusError, match="reads weights from a list"):
            compiled.CompiledMethod(own.update, CPU)(torch.ones(5, 3))
