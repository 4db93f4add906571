"""The replay buffer on the device holds what the one in main memory holds, and draws without the host."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.data.replay.device_ring import Column, DeviceReplay
from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.store import codec
from ludus.store.checkpoint import digest_of

CPU = torch.device("cpu")
COLUMNS = {
    "obs": Column((3,), torch.float32),
    "reward": Column((), torch.float32),
    "mask": Column((2, 2), torch.bool),
    "piece": Column((4,), torch.int8),
    "value": Column((2,), torch.bfloat16),
    "move": Column((), torch.int64),
}


def rows(first: int, count: int) -> dict[str, Tensor]:
    """Return rows whose every number tells which one it belongs to."""
    numbers = torch.arange(first, first + count)
    return {
        "obs": numbers[:, None] + torch.tensor([0.0, 0.25, 0.5]),
        "reward": 2.0 * numbers,
        "mask": (numbers[:, None, None] % torch.tensor([[2, 3], [5, 7]])) == 0,
        "piece": (numbers[:, None] % torch.tensor([100, 50, 25, 10])).to(torch.int8),
        "value": (numbers[:, None] % torch.tensor([8, 16])).bfloat16(),
        "move": numbers,
    }


def make(capacity: int = 10, **options: Any) -> DeviceReplay:
    return DeviceReplay(COLUMNS, capacity, **({"seed": 3, "device": CPU} | options))


def filled(*counts: int, capacity: int = 10) -> DeviceReplay:
    buffer, total = make(capacity), 0
    for count in counts:
        buffer.push(rows(total, count))
        total += count
    return buffer


@pytest.mark.covers("001-D9")
@pytest.mark.parametrize(
    "counts", [(4,), (10,), (4, 4), (4, 4, 4), (7, 10), (3, 9, 9, 9), (23,), (6, 25, 1), (1,) * 34]
)
def test_it_holds_what_the_ring_in_main_memory_holds_after_the_same_pushes(
    counts: tuple[int, ...],
) -> None:
    buffer, other = filled(*counts), ReplayBuffer(RowLayout((3,), np.float32, 1), 10, seed=3)
    total = 0
    for count in counts:
        own = {name: column.float().numpy() for name, column in rows(total, count).items()}
        other.push(own["obs"], own["move"][:, None], own["reward"], own["reward"], own["obs"])
        total += count
    places = torch.arange(int(buffer.size))
    assert int(buffer.size) == other.size
    assert int(buffer.total_pushed) == other.total == total
    theirs = other.layout.split(other._rows[: other.size])
    found = buffer.at(places)
    assert torch.equal(found["obs"], theirs.obs)
    assert torch.equal(found["reward"], theirs.rewards)
    assert torch.equal(found["move"].float(), theirs.actions[:, 0])
    for column, value in rows(0, total).items():
        assert torch.equal(found[column], value[found["move"]])
        assert found[column].dtype == COLUMNS[column].dtype


@pytest.mark.parametrize("capacity", [1, 4, 10, 60])
def test_only_rows_that_a_mask_keeps_are_held_in_their_order(capacity: int) -> None:
    draws = torch.Generator().manual_seed(capacity)
    masked, chosen, total = make(capacity), make(capacity), 0
    for count in (5, 0, 13, 1, 30, 2):
        keep = torch.rand(count, generator=draws) < 0.6
        given = rows(total, count)
        masked.push_where(keep, given)
        chosen.push({name: tensor[keep] for name, tensor in given.items()})
        total += count
        assert int(masked.total_pushed) == int(chosen.total_pushed)
        for name in COLUMNS:
            assert torch.equal(masked._rings[name], chosen._rings[name]), name


def test_a_mask_that_does_not_fit_its_rows_is_refused() -> None:
    with pytest.raises(
        LudusError, match=r"torch.float32 of \(3,\); it must be torch.bool of \(3,\)"
    ):
        make().push_where(torch.ones(3), rows(0, 3))
    with pytest.raises(LudusError, match=r"torch.bool of \(2,\); it must be torch.bool of \(3,\)"):
        make().push_where(torch.ones(2, dtype=torch.bool), rows(0, 3))


def test_a_buffer_whose_masks_kept_nothing_gives_zeros() -> None:
    buffer = make()
    buffer.push_where(torch.zeros(3, dtype=torch.bool), rows(7, 3))
    assert int(buffer.size) == 0
    assert not buffer.sample(4)["move"].any()


@pytest.mark.covers("001-M8")
def test_every_row_held_is_drawn_as_often_as_any_other() -> None:
    """30 000 draws of 6 rows: each 5 000 times, give or take five deviations of 65."""
    drawn = filled(4, 2).sample(30_000)["move"]
    counts = torch.bincount(drawn, minlength=6)
    assert counts.shape == (6,)
    assert ((counts - 5000).abs() < 325).all(), counts
    assert set(filled(23).sample(500)["move"].tolist()) == set(range(13, 23))


def test_draws_follow_from_the_seed_and_the_name_alone() -> None:
    def draws(**options: Any) -> list[int]:
        buffer = make(**options)
        buffer.push(rows(0, 10))
        return [*buffer.draw(20).tolist(), *buffer.draw(20).tolist()]

    torch.manual_seed(1)
    first = draws()
    torch.manual_seed(2)
    assert draws() == first
    assert (
        len({*map(tuple, (first, draws(seed=4), draws(name="other"), first[20:] + first[:20]))})
        == 4
    )


def test_a_batch_is_not_changed_by_later_pushes_or_draws() -> None:
    buffer = filled(10)
    batch = buffer.sample(8)
    before = copy.deepcopy(batch)
    buffer.push(rows(10, 10))
    buffer.sample(8)
    torch.testing.assert_close(batch, before, rtol=0, atol=0)


@pytest.mark.covers("001-D9")
def test_pushed_rows_are_copied() -> None:
    buffer, pushed = make(), rows(0, 4)
    buffer.push(pushed)
    pushed["obs"].fill_(9.0)
    assert torch.equal(buffer.at(torch.arange(4))["obs"], rows(0, 4)["obs"])


def test_a_buffer_that_comes_back_draws_on_to_the_bit() -> None:
    straight, first = filled(8, 8), filled(8, 8)
    for buffer in (straight, first):
        buffer.sample(5)
    tree, tensors, segments = codec.encode(first.state_dict(), keep=lambda path, t: t.clone())
    second = make()
    second.load_state_dict(
        codec.decode(codec.parse_json(codec.dump_json(tree), source="test"), tensors, segments)
    )
    for buffer in (straight, second):
        buffer.push(rows(16, 7))
    torch.testing.assert_close(second.sample(30), straight.sample(30), rtol=0, atol=0)
    assert digest_of(second.state_dict()) == digest_of(straight.state_dict())


def test_a_checkpoint_holds_anew_only_what_is_new() -> None:
    buffer = filled(3000, capacity=8192)
    first = buffer.state_dict()["rows"]["pieces"]
    buffer.push(rows(3000, 2000))
    second = buffer.state_dict()["rows"]["pieces"]
    assert len(second) > len(first) > 1
    assert all(one is two for one, two in zip(first, second, strict=False))


def test_numbers_that_are_not_finite_come_back() -> None:
    """A log-probability of an action that is not allowed is one."""
    buffer = make()
    own = rows(0, 4)
    own["obs"][2] = -torch.inf
    buffer.push(own)
    again = make()
    again.load_state_dict(copy.deepcopy(buffer.state_dict()))
    assert torch.equal(again.at(torch.arange(4))["obs"], own["obs"])


def test_a_state_of_another_kind_of_device_goes_on_with_a_generator_derived_anew() -> None:
    buffer = filled(8)
    state = copy.deepcopy(buffer.state_dict())
    state["generator"] = {"device": "cuda", "state": torch.zeros(16, dtype=torch.uint8)}
    ends = []
    for _ in range(2):
        again = make()
        again.load_state_dict(state)
        ends.append(again.draw(20).tolist())
    assert ends[0] == ends[1] != buffer.draw(20).tolist()


def test_another_capacity_is_refused() -> None:
    with pytest.raises(CheckpointError, match="capacity of 10 and has 11"):
        make(11).load_state_dict(filled(4).state_dict())


@pytest.mark.covers("001-D9")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"obs": None}, "column 'obs' of 'replay' was not pushed"),
        ({"rewrad": torch.zeros(4)}, r"no column 'rewrad'. Did you mean 'reward'\?"),
        ({"reward": torch.zeros(5)}, r"'reward' pushed to 'replay' is torch.float32 of \(5,\)"),
        ({"reward": torch.zeros(4, 1)}, r"of \(4, 1\) on cpu; it must be torch.float32 of \(4,\)"),
        ({"reward": torch.zeros(4).double()}, "is torch.float64 of"),
        ({"mask": torch.zeros(4, 2, 2)}, "must be torch.bool"),
        ({"reward": torch.zeros(4, device="meta")}, "on meta; it must be"),
        ({"obs": torch.zeros(())}, r"'obs' pushed to 'replay' is torch.float32 of \(\)"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_a_sentence(change: dict[str, Any], told: str) -> None:
    given = {name: value for name, value in (rows(0, 4) | change).items() if value is not None}
    buffer = make()
    with pytest.raises(LudusError, match=told):
        buffer.push(given)
    assert int(buffer.total_pushed) == 0


def test_what_cannot_be_drawn_or_kept_is_told() -> None:
    with pytest.raises(LudusError, match="'replay' is empty"):
        make().sample(2)
    with pytest.raises(LudusError, match="'replay' is empty"):
        filled(0).sample(2)
    with pytest.raises(ConfigError, match="batch of 0"):
        filled(4).sample(0)
    with pytest.raises(ConfigError, match="capacity of 'replay' is 0"):
        make(0)
    with pytest.raises(ConfigError, match="no columns"):
        DeviceReplay({}, 10, seed=0, device=CPU)


@pytest.mark.parametrize("mode", [0, 2])
def test_pushing_leaves_torch_as_deterministic_as_it_was(mode: int) -> None:
    before = torch.get_deterministic_debug_mode()
    buffer = make(capacity=4)
    try:
        torch.set_deterministic_debug_mode(mode)
        buffer.push(rows(0, 3))
        assert torch.get_deterministic_debug_mode() == mode
        buffer.push_where(torch.tensor([True, False, True]), rows(3, 3))
        assert torch.get_deterministic_debug_mode() == mode
    finally:
        torch.set_deterministic_debug_mode(before)
    assert int(buffer.total_pushed) == 5
