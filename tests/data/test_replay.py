"""The replay buffer: a ring of packed rows that is drawn from, saved and taken up exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.data.replay.segments import piece_length
from ludus.store import checkpoint, codec
from ludus.store.checkpoint import digest_of
from ludus.store.local import LocalStorage

ABOUT = {
    "offsets": {},
    "fingerprint": {},
    "exact": True,
    "inexact_because": [],
    "best": None,
    "models": [],
}
FLAT = RowLayout((3,), np.float32, 2, mask_width=2)
IMAGES = RowLayout((2, 3), np.uint8, 1)


def transitions(first: int, count: int, layout: RowLayout) -> list[Any]:
    """Return transitions whose every number tells which one it belongs to."""
    numbers = np.arange(first, first + count)
    obs = np.zeros((count, *layout.obs_shape)) + numbers.reshape(-1, *[1] * len(layout.obs_shape))
    obs += np.arange(layout.obs_width).reshape(layout.obs_shape) / 100 * (not layout.has_images)
    actions = np.stack([numbers + n / 10 for n in range(layout.action_width)], axis=1)
    next_obs = (obs + 1).astype(layout.obs_dtype)
    masks = np.stack([numbers % 2 == 0, numbers % 3 == 0], axis=1) if layout.mask_width else None
    obs = obs.astype(layout.obs_dtype)
    return [obs, actions, numbers * 2.0, numbers % 5 != 0, next_obs, masks]


def make(layout: RowLayout = FLAT, capacity: int = 10, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(layout, capacity, **({"seed": 3} | options))


def fill(buffer: ReplayBuffer, total: int, step: int = 3) -> ReplayBuffer:
    while buffer.total < total:
        count = min(step, total - buffer.total)
        buffer.push(*transitions(buffer.total, count, buffer.layout))
    return buffer


def held(buffer: ReplayBuffer) -> list[int]:
    """Return the numbers of the transitions in the ring, by place."""
    return (buffer._rows[: buffer.size, buffer.layout.reward.start] / 2).int().tolist()


class Staged(ReplayBuffer):
    """A buffer that believes it is on another device, so that the staging area is used."""

    def _open_for_writing(self) -> None:
        self.device = torch.device("meta")
        super()._open_for_writing()
        self.device = torch.device("cpu")


@pytest.mark.covers("000-S7", "001-M8")
@pytest.mark.parametrize("layout", [FLAT, IMAGES])
@pytest.mark.parametrize("kind", [ReplayBuffer, Staged])
def test_a_drawn_transition_is_one_that_was_pushed(layout: RowLayout, kind: Any) -> None:
    buffer = fill(kind(layout, 7, seed=0), 24)
    batch = buffer.sample(50)
    found = layout.split(batch.rows, batch.images)
    numbers = (found.rewards / 2).int().tolist()
    assert set(numbers) == set(range(17, 24))
    for n, number in enumerate(numbers):
        obs, action, reward, discount, next_obs, masks = transitions(number, 1, layout)
        assert found.obs.dtype == (torch.uint8 if layout is IMAGES else torch.float32)
        np.testing.assert_array_equal(found.obs[n], obs[0])
        np.testing.assert_array_equal(found.actions[n], action[0].astype(np.float32))
        assert (found.rewards[n], found.discounts[n]) == (reward[0], discount[0])
        np.testing.assert_array_equal(found.next_obs[n], next_obs[0])
        if masks is None:
            assert found.next_masks is None
        else:
            assert found.next_masks[n].tolist() == masks[0].tolist()


@pytest.mark.covers("001-D9")
@pytest.mark.parametrize("step", [1, 3, 10, 27])
def test_the_ring_holds_the_newest_however_many_are_pushed_at_once(step: int) -> None:
    buffer = fill(make(capacity=10), 54, step)
    assert (buffer.size, buffer.total, buffer.capacity) == (10, 54, 10)
    assert held(buffer) == [*range(50, 54), *range(44, 50)]


def test_the_columns_lie_in_the_order_that_others_count_on() -> None:
    layout = RowLayout((2,), np.float32, 1, 3)
    row = torch.arange(10.0)[None]
    found = layout.split(row)
    assert [piece.flatten().tolist() for piece in found] == [
        [0, 1],
        [2],
        [3],
        [4],
        [5, 6],
        [7, 8, 9],
    ]
    assert layout.width == 10
    assert all(piece.data_ptr() - row.data_ptr() == 4 * piece.flatten()[0] for piece in found)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("make_rows", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_observations_come_back_in_their_shape(shape: tuple[int, ...], make_rows: Any) -> None:
    layout = RowLayout(shape, np.float32, 1)
    rows = np.arange(3.0 * layout.width, dtype=np.float32).reshape(3, -1)
    found = layout.split(make_rows(rows))
    width = layout.obs_width
    assert tuple(found.obs.shape) == tuple(found.next_obs.shape) == (3, *shape)
    assert np.array_equal(found.obs, rows[:, :width].reshape(3, *shape))
    assert np.array_equal(found.next_obs, rows[:, width + 3 :].reshape(3, *shape))


def test_a_buffer_draws_batches_of_its_own_size_unless_it_is_told() -> None:
    buffer = fill(make(batch_size=4), 6)
    assert [len(buffer.sample().rows), len(buffer.sample(2).rows)] == [4, 2]
    with pytest.raises(LudusError, match="'replay' was made without a batch_size; give one"):
        fill(make(), 6).sample()


def test_splitting_can_be_compiled_whole() -> None:
    compiled = torch.compile(lambda rows: FLAT.split(rows).obs + 1, fullgraph=True, backend="eager")
    rows = torch.randn(4, FLAT.width)
    assert torch.equal(compiled(rows), rows[:, :3] + 1)


def test_nothing_can_be_drawn_from_an_empty_buffer() -> None:
    with pytest.raises(LudusError, match="'replay' is empty"):
        make().sample(4)


def test_mistakes_are_told_plainly() -> None:
    with pytest.raises(ConfigError, match="capacity of 'replay' is 0"):
        make(capacity=0)
    with pytest.raises(ConfigError, match="a batch of 0"):
        fill(make(), 4).sample(0)
    with pytest.raises(ConfigError, match="float64"):
        RowLayout((3,), np.float64, 1)
    with pytest.raises(LudusError, match="keeps action masks"):
        make().push(*transitions(0, 2, FLAT)[:5])


def test_draws_are_uniform_and_follow_from_seed_and_name_alone() -> None:
    buffer = fill(make(capacity=8), 8)
    counts = np.bincount(np.concatenate([buffer.sample(100).indices.copy() for _ in range(80)]))
    # 8000 draws over 8 places: 1000 each, with a deviation of 30.
    assert counts.min() > 850
    assert counts.max() < 1150
    draws = [make(**options) for options in ({}, {}, {"seed": 4}, {"name": "other"})]
    first, same, *others = [fill(b, 8).sample(64).indices.tolist() for b in draws]
    assert first == same
    assert first not in others


def test_a_staged_buffer_draws_the_same_as_one_on_the_cpu() -> None:
    plain, staged = make(), Staged(FLAT, 10, seed=3)
    for total in (4, 9, 23, 24, 61):
        one, two = fill(plain, total).sample(6), fill(staged, total).sample(6)
        assert torch.equal(one.rows, two.rows)
        assert one.indices.tolist() == two.indices.tolist()
    assert digest_of(plain.state_dict()) == digest_of(staged.state_dict())


def test_a_piece_is_short_for_large_rows_and_never_longer_than_the_ring() -> None:
    assert piece_length(10, 44) == 10
    assert piece_length(100_000, 44) == 1024
    assert piece_length(1_000_000, 44) == 1954
    assert piece_length(10_000, 56_448) == 74
    assert piece_length(4, 1 << 30) == 1


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.data.replay.segments._ROWS", 4)


@pytest.mark.covers("000-S7", "000-D3")
@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("layout", [FLAT, IMAGES])
@pytest.mark.parametrize("kind", [ReplayBuffer, Staged])
@pytest.mark.parametrize("total", [0, 3, 4, 15, 22, 23, 40, 47])
def test_a_buffer_is_taken_up_exactly(
    total: int, kind: Any, layout: RowLayout, tmp_path: Path
) -> None:
    buffer = fill(kind(layout, 22, seed=1), total)
    storage = LocalStorage(tmp_path)
    checkpoint.write(storage, 1, codec.encode({"replay": buffer.state_dict()}), ABOUT)
    fresh = fill(kind(layout, 22, seed=9), 5)
    fresh.load_state_dict(checkpoint.read(storage, 1).state["replay"])
    assert digest_of(fresh.state_dict()) == digest_of(buffer.state_dict())
    for more in (1, 30):
        one, two = (fill(b, total + more).sample(20) for b in (buffer, fresh))
        assert torch.equal(one.rows, two.rows)
        assert one.images is two.images or torch.equal(one.images, two.images)


@pytest.mark.usefixtures("short_pieces")
def test_a_state_does_not_depend_on_when_it_was_saved_before(tmp_path: Path) -> None:
    often, once = make(capacity=22), make(capacity=22)
    storage = LocalStorage(tmp_path)
    for total in range(1, 60):
        fill(often, total)
        taken = codec.encode({"replay": often.state_dict()})
        if total % 3 == 0:
            checkpoint.write(storage, total, taken, ABOUT)
        assert digest_of(often.state_dict()) == digest_of(
            fill(make(capacity=22), total).state_dict()
        )
    assert digest_of(often.state_dict()) == digest_of(fill(once, 59).state_dict())


@pytest.mark.usefixtures("short_pieces")
def test_a_checkpoint_writes_what_is_new_and_holds_no_copy_of_the_ring(tmp_path: Path) -> None:
    buffer, storage = fill(make(capacity=40), 50), LocalStorage(tmp_path)
    checkpoint.write(storage, 1, codec.encode({"replay": buffer.state_dict()}), ABOUT)
    first = set(storage.names("segments"))
    fill(buffer, 57)
    tree, tensors, segments = codec.encode({"replay": buffer.state_dict()})
    # Rows 17 to 56 are held: 3 before the first whole piece, 1 after the last.
    assert {len(t) for path, t in tensors.items() if path.endswith("rows")} == {3, 1}
    assert len(segments) == 9
    checkpoint.write(storage, 2, (tree, tensors, segments), ABOUT)
    assert len(set(storage.names("segments")) - first) == 2
    assert all(segment._tensors is None for segment in segments)
    checkpoint.collect(storage, keep_last=1)
    assert len(storage.names("segments")) == 9


@pytest.mark.usefixtures("short_pieces")
def test_a_piece_whose_file_is_gone_is_made_anew_from_the_ring(tmp_path: Path) -> None:
    buffer, storage = fill(make(capacity=20), 20), LocalStorage(tmp_path)
    checkpoint.write(storage, 1, codec.encode({"replay": buffer.state_dict()}), ABOUT)
    name = storage.names("segments")[0]
    for folder in ("segments", "segments-copy"):
        (tmp_path / folder / name).unlink()
    with pytest.raises(CheckpointError, match="segments"):
        checkpoint.write(storage, 2, codec.encode({"replay": buffer.state_dict()}), ABOUT)
    checkpoint.write(storage, 3, codec.encode({"replay": buffer.state_dict()}), ABOUT)
    fresh = make(capacity=20)
    fresh.load_state_dict(checkpoint.read(storage, 3).state["replay"])
    assert held(fresh) == list(range(20))


def test_a_state_of_another_shape_is_refused() -> None:
    state = fill(make(), 8).state_dict()
    with pytest.raises(CheckpointError, match="capacity of 10 and has 11"):
        make(capacity=11).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"'transitions/head/rows' is .* of \(0, 12\)"):
        make(RowLayout((5,), np.float32, 2)).load_state_dict(state)
    with pytest.raises(CheckpointError, match="'transitions/pieces' has 0 entries"):
        make().load_state_dict(state | {"total": 10})
