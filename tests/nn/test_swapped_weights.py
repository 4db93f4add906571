"""A network that is used with other weights, or in another mode, is as it was afterwards."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.states import StateError
from ludus.nn.learner import Learner
from ludus.nn.model import Model
from ludus.nn.optimizer import Sgd
from ludus.nn.swapped_weights import Kept, restored, swapped_weights

SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)


class Marked(nn.Module):
    """Has one of everything that can be restored."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("empty", None)
        self.extra, self.plain = [1], [1]

    def get_extra_state(self) -> list[int]:
        return self.extra

    def set_extra_state(self, state: list[int]) -> None:
        self.extra = state


CHANGES: dict[Kept, Any] = {
    "weights": lambda one: one.layer.weight.data.fill_(7),
    "buffers": lambda one: one.register_buffer("seen", one.seen.fill_(7) + 1),
    "extra_state": lambda one: one.extra.append(7),
    "attributes": lambda one: one.plain.append(7),
    "modes": lambda one: one.layer.eval(),
}


def looks(one: Marked) -> dict[Kept, Any]:
    return {
        "weights": one.layer.weight.tolist(),
        "buffers": (id(one.seen), one.seen.tolist(), one.empty),
        "extra_state": list(one.extra),
        "attributes": (id(one.plain), list(one.plain)),
        "modes": one.layer.training,
    }


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_named_is_restored_even_after_an_error(kind: Kept) -> None:
    network = Marked()
    before = looks(network)
    for what in ([kind], [one for one in CHANGES if one != kind and {one, kind} != _ONE_STORED]):
        with contextlib.suppress(ValueError), restored(network, what=what):
            CHANGES[kind](network)
            raise ValueError("inside")
        assert (looks(network)[kind] == before[kind]) == (kind in what)


# A list in an attribute is extra state and attribute alike.
_ONE_STORED: set[Kept] = {"extra_state", "attributes"}


def test_all_of_it_is_restored_at_once_and_by_default_all_but_weights_and_modes() -> None:
    network = Marked()
    before = looks(network)
    with restored(network, what=tuple(CHANGES)):
        for change in CHANGES.values():
            change(network)
    assert looks(network) == before
    with restored(network):
        for change in CHANGES.values():
            change(network)
    assert [kind for kind, value in looks(network).items() if value != before[kind]] == [
        "weights", "modes"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda: Learner(Marked(), SGD, max_grad_norm=None), lambda one: one.weights()),
        (lambda: Model(Marked()), lambda one: one.state_dict()),
    ],
    ids=["learner", "model"],
)
def test_other_weights_are_there_in_the_block_and_those_that_do_not_fit_change_nothing(
    make: Any, read: Any
) -> None:
    own, other = make(), copy.deepcopy(read(make()))
    other["seen"] = torch.full((2,), 3.0)
    before = copy.deepcopy(read(own))
    with swapped_weights(own, other):
        assert all(torch.equal(read(own)[name], other[name]) for name in before)
    assert all(torch.equal(read(own)[name], before[name]) for name in before)
    with (
        pytest.raises(StateError, match="seen"),
        swapped_weights(own, {**other, "seen": torch.zeros(3)}),
    ):
        raise AssertionError
    assert all(torch.equal(read(own)[name], before[name]) for name in before)
