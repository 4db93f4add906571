"""Batches in memory: their order depends on (seed, epoch) alone, so any position can be taken up."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ludus.core.errors import ConfigError
from ludus.data.batches import memory as module
from ludus.data.batches.memory import MemoryBatches, make_batches
from ludus.data.batches.splits import Examples

CPU = torch.device("cpu")
INPUTS, TARGETS = torch.arange(46.0).reshape(23, 2), torch.arange(23)


def make(source: Any = None, **changes: Any) -> MemoryBatches:
    options = {"batch_size": 5, "shuffle": True, "drop_last": False, "workers": 0, "seed": 7}
    source = Examples(INPUTS, TARGETS) if source is None else source
    made = make_batches(source, device=CPU, **(options | changes))
    assert isinstance(made, MemoryBatches)
    return made


def rest(batches: MemoryBatches) -> list[list[int]]:
    """Return the targets of all batches that are left of this epoch."""
    found = []
    while not batches.has_ended():
        inputs, targets = batches.next()
        assert torch.equal(inputs, INPUTS[targets])
        found.append(targets.tolist())
    return found


def epoch(batches: MemoryBatches, number: int) -> list[list[int]]:
    batches.start(number)
    return rest(batches)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the epoch shuffled whole, and with each batch gathered when it is taken."""
    if request.param == "large":
        monkeypatch.setattr(module, "_SMALL", 0)
    return str(request.param)


def test_an_epoch_has_every_example_once(size: str) -> None:
    taken = epoch(make(), 0)
    assert [len(batch) for batch in taken] == [5, 5, 5, 5, 3]
    assert sorted(chain(*taken)) == list(range(23))


def test_the_order_depends_on_seed_and_epoch_only(size: str) -> None:
    one, two = make(), make()
    first = epoch(one, 0)
    torch.manual_seed(99)
    random.seed(99)
    assert epoch(one, 4) == epoch(two, 4)
    assert epoch(two, 0) == first
    assert epoch(one, 1) != first
    assert epoch(make(seed=8), 0) != first


def test_the_order_is_the_slow_obvious_one(size: str) -> None:
    from ludus.seeds import generator

    order = torch.randperm(23, generator=generator(7, "order", 3)).tolist()
    assert epoch(make(), 3) == [order[start : start + 5] for start in range(0, 23, 5)]


def test_small_and_large_data_give_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    small = make()
    monkeypatch.setattr(module, "_SMALL", 0)
    large = make()
    assert [epoch(small, number) for number in range(3)] == [
        epoch(large, number) for number in range(3)
    ]


@pytest.mark.parametrize("position", range(6))
def test_a_resume_at_any_position_gives_the_remaining_batches(size: str, position: int) -> None:
    batches = make()
    batches.start(2)
    for _ in range(position):
        batches.next()
    state = batches.state_dict()
    remaining = rest(batches)
    other = make()
    other.load_state_dict(state)
    assert (other.epoch, other.position) == (2, position)
    assert rest(other) == remaining
    assert len(remaining) == 5 - position


def test_a_state_from_before_the_first_epoch_stands_before_it() -> None:
    batches, fresh = make(), make()
    batches.start(3)
    batches.next()
    batches.load_state_dict(fresh.state_dict())
    assert (batches.epoch, batches.position) == (-1, 0)


def test_drop_last_leaves_out_what_does_not_fill_a_batch(size: str) -> None:
    batches = make(drop_last=True)
    assert batches.length() == 4
    assert [len(batch) for batch in epoch(batches, 0)] == [5, 5, 5, 5]
    assert epoch(batches, 0) == epoch(make(), 0)[:4]


def test_drop_last_with_fewer_examples_than_a_batch_is_refused_with_the_right_size() -> None:
    with pytest.raises(ConfigError, match=r"batch_size is 24.*use at most 23"):
        make(batch_size=24, drop_last=True)


def test_no_examples_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="there are no examples"):
        make(Examples(torch.zeros(0, 2), torch.zeros(0)))


def test_tensors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[23, 22\] rows; they must agree"):
        Examples(INPUTS, TARGETS[:-1])


def test_without_shuffling_the_order_is_the_data_sets(size: str) -> None:
    assert list(chain(*epoch(make(shuffle=False), 5))) == list(range(23))


def test_a_plain_loader_of_tensors_keeps_its_own_size_and_order() -> None:
    """Its rows would be fetched one by one to make the same batches."""
    dataset = TensorDataset(INPUTS, TARGETS)
    plain = make(DataLoader(dataset, batch_size=4, drop_last=True), batch_size=9)
    assert [targets.tolist() for _, targets in DataLoader(dataset, batch_size=4)][:5] == epoch(
        plain, 0
    )
    shuffled = make(DataLoader(dataset, batch_size=4, shuffle=True), batch_size=9, shuffle=False)
    assert shuffled.length() == 6
    assert epoch(shuffled, 0) != epoch(shuffled, 1)


def test_drawing_batches_leaves_the_global_generators_alone(size: str) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    epoch(make(), 0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_batches_lie_on_the_device_asked_for() -> None:
    batches = MemoryBatches(
        Examples(INPUTS, TARGETS),
        batch_size=5,
        shuffle=True,
        drop_last=False,
        seed=0,
        device=torch.device("meta"),
    )
    batches.start(0)
    taken: tuple[Tensor, ...] = batches.next()
    assert {tensor.device.type for tensor in taken} == {"meta"}
