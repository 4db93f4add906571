"""What a network holds beside its trained weights is loaded whole, by name, shape and type, or not at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.core.states import StateError
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Sgd
from ludus.nn.target import Target
from ludus.store.checkpoint import digest_of

SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)


class Counting(nn.Module):
    """Holds a buffer and a number that torch keeps as extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        return x - self.mean

    def get_extra_state(self) -> Any:
        return {"count": self.count, "words": "x" * self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


def learner(count: int = 0) -> Learner:
    made = Learner(nn.Sequential(nn.Linear(3, 2), Counting()), SGD, max_grad_norm=None)
    made.module[1].count = count  # type: ignore[index]
    made.module[1].mean.fill_(count)  # type: ignore[index]
    return made


@pytest.mark.parametrize("make", [lambda one: one, Target], ids=["learner", "target"])
def test_all_that_is_held_is_loaded_whatever_the_length_of_its_extra_state(make: Any) -> None:
    one, other = make(learner(7)), make(learner(0))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert digest_of(dict(other.state_dict())) == digest_of(dict(one.state_dict()))
    assert other.module_state.tensors()["1.mean"].tolist() == [7, 7]


BAD: dict[str, Any] = {
    "another shape": ("1.mean", torch.zeros(3), "is float32 (3,), in the model float32 (2,)"),
    "another type": ("1.mean", torch.zeros(2).long(), "is int64 (2,), in the model float32 (2,)"),
    "missing": ("1.mean", None, "is missing"),
    "no extra state": ("1._extra_state", None, "is missing"),
    "a spoilt one": ("1._extra_state", torch.zeros(9, dtype=torch.uint8), "cannot be taken"),
    "too many": ("1.other", torch.zeros(2), "is float32 (2,), in the model None"),
}


@pytest.mark.parametrize(("name", "value", "problem"), BAD.values(), ids=BAD.keys())
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(
    name: str, value: Any, problem: str
) -> None:
    own, weights = learner(1), copy.deepcopy(learner(2).weights())
    before = digest_of(own.state_dict())
    if value is None:
        del weights[name]
    else:
        weights[name] = value
    with pytest.raises(StateError) as refusal:
        own.load_weights(weights)
    assert refusal.value.key == name
    assert problem in str(refusal.value)
    assert digest_of(own.state_dict()) == before


def test_only_a_state_of_the_first_format_may_lack_all_of_it() -> None:
    own, other = learner(1), learner(2)
    trained = copy.deepcopy(other.flat.by_name(other.flat.vectors))
    with pytest.raises(StateError, match=r"'1\._extra_state' is missing"), states.of_format(2):
        own.load_weights(trained)
    assert not own.module_state.was_lost
    with states.of_format(1):
        own.load_weights(trained)
    assert own.module_state.was_lost
    assert own.flat.vectors[0].equal(other.flat.vectors[0])
    assert own.module_state.tensors()["1.mean"].tolist() == [1, 1]
    with states.of_format(1), pytest.raises(StateError, match=r"'1\._extra_state' is missing"):
        own.load_weights({**trained, "1.mean": torch.zeros(2)})


def test_a_network_that_holds_nothing_more_lacks_nothing() -> None:
    own = Learner(nn.Linear(3, 2), SGD, max_grad_norm=None)
    with states.of_format(1):
        own.load_state_dict(copy.deepcopy(own.state_dict()))
    assert not own.module_state.was_lost
