"""Replay on a GPU: rows made there are pushed and drawn, and those of the host copied, without waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.data.batches.memory import MemoryBatches
from ludus.data.batches.splits import Examples
from ludus.data.replay.device_ring import Column, DeviceReplay
from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.row_layout import RowLayout

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # torch warns, once a process, that the mode does not find every wait.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]
CUDA = torch.device("cuda")
COLUMNS = {"number": Column((), torch.int64), "mask": Column((5,), torch.bool)}


@contextlib.contextmanager
def not_waiting() -> Iterator[None]:
    """Fail where the host waits for the GPU."""
    try:
        torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def make(capacity: int = 10_000) -> DeviceReplay:
    return DeviceReplay(COLUMNS, capacity, seed=3, device=CUDA)


def rows(first: int, count: int) -> dict[str, Tensor]:
    numbers = torch.arange(first, first + count, device=CUDA)
    return {"number": numbers, "mask": numbers[:, None] % torch.arange(2, 7, device=CUDA) == 0}


def test_pushing_and_drawing_never_wait_for_the_gpu() -> None:
    buffer = make()
    with not_waiting():
        for step in range(5):
            buffer.push(rows(step * 4096, 4096))
            batch = buffer.sample(512)
    drawn = batch["number"]
    assert int(drawn.min()) >= 5 * 4096 - 10_000
    assert torch.equal(batch["mask"], drawn[:, None] % torch.arange(2, 7, device=CUDA) == 0)


def test_it_holds_on_the_gpu_what_it_holds_on_the_cpu_and_comes_back_to_the_bit() -> None:
    own, other = make(), DeviceReplay(COLUMNS, 10_000, seed=3, device=torch.device("cpu"))
    for count in (4096, 9000, 25_000, 1):
        first = int(own.total_pushed)
        own.push(rows(first, count))
        other.push({name: column.cpu() for name, column in rows(first, count).items()})
    places = torch.arange(10_000)
    found = {name: column.cpu() for name, column in own.at(places.to(CUDA)).items()}
    torch.testing.assert_close(found, other.at(places), rtol=0, atol=0)
    again = make()
    again.load_state_dict(own.state_dict())
    assert torch.equal(again.draw(1000), own.draw(1000))
    other.load_state_dict(own.state_dict())
    assert int(other.draw(1000).max()) < 10_000


def test_pushing_and_drawing_can_be_captured_in_a_graph() -> None:
    buffer, plain = make(1000), make(1000)
    fresh = rows(0, 64)
    for each in (buffer, plain):
        each.push(fresh)
        each.sample(32)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(buffer.generator)
    with torch.cuda.graph(graph):
        buffer.push(fresh)
        drawn = buffer.sample(32)["number"]
    for step in range(1, 30):
        for name, column in rows(step * 64, 64).items():
            fresh[name].copy_(column)
        graph.replay()
        plain.push(fresh)
        expected = plain.sample(32)["number"]
        assert torch.equal(drawn, expected)
    assert int(buffer.total_pushed) == 30 * 64


def test_draws_from_rows_of_the_host_do_not_wait_for_the_gpu() -> None:
    """Also when the ring turns; and what is drawn is what the ring in main memory draws."""
    layout = RowLayout((3,), np.float32, 1)
    own = ReplayBuffer(layout, 3000, seed=5, device=CUDA)
    host = ReplayBuffer(layout, 3000, seed=5)
    for step in range(40):
        obs = np.full((100, 3), step, np.float32) + np.arange(300).reshape(100, 3) / 300
        rewards = np.arange(100.0) + 100 * step
        for buffer in (own, host):
            buffer.push(obs, obs[:, :1], rewards, np.ones(100), obs + 1)
        with not_waiting():
            batch = own.sample(64)
        assert torch.equal(batch.rows.cpu(), host.sample(64).rows)


def test_an_epoch_of_batches_in_memory_starts_without_waiting() -> None:
    examples = Examples(torch.arange(1000.0)[:, None], torch.arange(1000))
    batches = MemoryBatches(
        examples, batch_size=64, shuffle=True, drop_last=False, seed=1, device=CUDA
    )
    with not_waiting():
        batches.start(0)
        taken = [batches.next() for _ in range(batches.length())]
    assert sorted(torch.cat([targets for _, targets in taken]).tolist()) == list(range(1000))
