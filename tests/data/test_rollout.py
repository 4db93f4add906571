"""The rollout buffer: steps go in as they come, and each epoch takes every row once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.data.replay.rollout import RolloutBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.store import codec
from ludus.store.checkpoint import digest_of

T, N = 5, 3
LAYOUT = RowLayout((2,), np.float32, 1, mask_width=2)


def make(num_steps: int = T, layout: RowLayout = LAYOUT, **options: Any) -> RolloutBuffer:
    return RolloutBuffer(num_steps, N, layout, **({"seed": 2} | options))


def step(number: int) -> list[np.ndarray]:
    obs = np.full((N, 2), number) + np.arange(N)[:, None] / 10
    ends = np.arange(N) == number
    return [obs, obs[:, :1], obs[:, 0] * 2, ends, ~ends, obs + 1, np.stack([ends, ~ends], axis=1)]


def filled(num_steps: int = T, **options: Any) -> RolloutBuffer:
    buffer = make(**options)
    for number in range(num_steps):
        buffer.add(*step(number))
    return buffer


def packed(**options: Any) -> RolloutBuffer:
    buffer = filled(**options)
    buffer.pack(torch.cat([buffer.obs, buffer.rewards[..., None]], dim=2).flatten(0, 1))
    return buffer


def test_what_was_added_lies_at_its_step() -> None:
    buffer = filled()
    found = [buffer.obs, buffer.actions, buffer.rewards, buffer.terminated, buffer.truncated]
    for number in range(T):
        expected = step(number)
        for tensor, array in zip([*found, buffer.next_obs, buffer.masks], expected, strict=True):
            np.testing.assert_array_equal(tensor[number], array.astype(tensor.numpy().dtype))


def test_it_fills_up_and_is_used_again() -> None:
    buffer = filled(T - 1)
    assert not buffer.is_full
    buffer.add(*step(T - 1))
    assert buffer.is_full
    place = buffer.obs.data_ptr()
    with pytest.raises(LudusError, match="full after 5 steps"):
        buffer.add(*step(0))
    buffer.clear()
    buffer.add(*step(7))
    assert (buffer.length, buffer.obs.data_ptr()) == (1, place)
    assert buffer.obs[0, 0].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("size", [1, 4, 5, 15, 99])
def test_an_epoch_takes_every_row_once_in_an_order_of_its_own(size: int) -> None:
    buffer = packed()
    epochs = []
    for _ in range(2):
        batches = list(buffer.minibatches(size))
        assert [len(batch.rows) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        order = torch.cat([batch.indices for batch in batches])
        assert sorted(order.tolist()) == list(range(T * N))
        rows = torch.cat([batch.rows for batch in batches])
        assert torch.equal(rows[:, :2], buffer.obs.flatten(0, 1)[order])
        epochs.append(order.tolist())
    assert epochs[0] != epochs[1]


def test_the_order_follows_from_seed_and_name_alone() -> None:
    orders = [
        next(packed(**options).minibatches(15)).indices.tolist()
        for options in ({}, {}, {"seed": 3}, {"name": "other"})
    ]
    assert orders[0] == orders[1]
    assert orders[0] not in orders[2:]


@pytest.mark.parametrize("num_steps", [0, 2, T])
def test_a_rollout_is_taken_up_half_way_through_collecting(num_steps: int) -> None:
    buffer = filled(num_steps)
    state = buffer.state_dict()
    assert len(state["steps"]["obs"]) == num_steps
    fresh = filled(1, seed=9)
    fresh.load_state_dict(codec.decode(*codec.encode(state)))
    assert digest_of(fresh.state_dict()) == digest_of(state)
    for number in range(num_steps, T):
        buffer.add(*step(number))
        fresh.add(*step(number))
    assert digest_of(fresh.state_dict()) == digest_of(buffer.state_dict())


def test_an_epoch_is_taken_up_half_way() -> None:
    buffer = packed()
    buffer.shuffle()
    buffer.next(4)
    fresh = make(seed=9)
    fresh.load_state_dict(codec.decode(*codec.encode(buffer.state_dict())))
    for one, two in zip(rest(buffer), rest(fresh), strict=True):
        assert torch.equal(one.rows, two.rows)
    pairs = zip(buffer.minibatches(4), fresh.minibatches(4), strict=True)
    assert all(torch.equal(one.indices, two.indices) for one, two in pairs)


def rest(buffer: RolloutBuffer) -> list[Any]:
    found = []
    while buffer.has_next:
        found.append(buffer.next(4))
    return found


def test_mistakes_are_told_plainly() -> None:
    with pytest.raises(ConfigError, match="number of steps of 'rollout' is 0"):
        make(num_steps=0)
    with pytest.raises(LudusError, match="no rows to shuffle"):
        filled().shuffle()
    with pytest.raises(LudusError, match="epoch of 'rollout' has ended"):
        packed().next(3)
    with pytest.raises(LudusError, match="which holds 15"):
        filled().pack(torch.zeros(14, 2))
    with pytest.raises(LudusError, match="keeps action masks"):
        make().add(*step(0)[:6])
    with pytest.raises(CheckpointError, match="'length' is 5; it must be from 0 to 3"):
        make(num_steps=3).load_state_dict(filled().state_dict())
    buffer = packed()
    with pytest.raises(ConfigError, match="minibatch of 0"):
        list(buffer.minibatches(0))
