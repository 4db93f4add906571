"""What a script's network changes as it runs is seen, and what belongs to others is not taken for it."""

from __future__ import annotations

import random
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ludus.nn.engines.unsaved import PlainState, unsaved


class Holding(nn.Module):
    def __init__(self, it: Any) -> None:
        super().__init__()
        self.layer = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(2))
        self.it = it


CHANGES: dict[str, tuple[Any, Any]] = {
    "a tensor": (torch.zeros(2), lambda one: one.add_(1)),
    "an array in a list": ([np.zeros(2)], lambda one: one[0].fill(1)),
    "a number in a mapping": (UserDict(n=0), lambda one: one.update(n=1)),
    "a deep value": ({"a": [{"b": [[[[1]]]]}]}, lambda one: one["a"][0]["b"][0][0][0].append(2)),
    "a generator of torch": (torch.Generator(), lambda one: torch.rand(1, generator=one)),
    "a generator of NumPy": (np.random.default_rng(0), lambda one: one.random()),
    "a generator of Python": (random.Random(0), lambda one: one.random()),
}


@pytest.mark.parametrize(("value", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_inside_a_plain_attribute_is_seen(value: Any, change: Any) -> None:
    state = PlainState(network := Holding(value))
    assert unsaved(state) == []
    change(network.it)
    (reason,) = unsaved(state)
    assert reason.startswith("Holding changes it as it runs, which no checkpoint holds: make it a")


def test_objects_buffers_and_other_layers_are_no_plain_attributes_of_a_network() -> None:
    state = PlainState(network := Holding(SimpleNamespace(n=0)))
    network.it.n, network.layer.p = 1, 0.1
    network.seen.add_(1)  # type: ignore[operator]
    assert unsaved(state) == []


def test_in_an_update_a_tensor_changes_when_another_stands_in_its_place() -> None:
    network = Holding([torch.zeros(2), torch.Generator(), np.zeros(2)])
    state = PlainState(network, in_update=True)
    network.it[0].add_(1)
    network.seen.add_(1)  # type: ignore[operator]
    assert state.changed() == []
    network.it[0], network.seen = torch.zeros(2), torch.zeros(2)
    assert state.changed() == [
        "Holding puts another tensor in the place of its seen",
        "Holding changes it as it runs",
    ]


def test_changed_settings_of_layers_are_named_by_the_layer() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    state = PlainState(layers=network)
    network[1].p = 0.1
    assert state.changed_settings() == ["p of the layer 1"]
    network[0].register_forward_hook(lambda *given: None)
    (reason,) = unsaved(state)
    assert "hooks of the layer 0 and of 1 more, which no checkpoint holds" in reason


def test_a_change_of_one_number_in_a_large_tensor_is_seen() -> None:
    state = PlainState(network := Holding(torch.zeros(72 << 20, dtype=torch.uint8)))
    network.it[12_345_678] = 1
    assert unsaved(state)
