"""Batches on their way to a GPU: copied ahead on a side stream, never overwritten while they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import ludus
from ludus.data.batches.memory import make_batches
from ludus.data.upload import UploadQueue
from ludus.testing import trainers
from tests.data.files import load, truncate, write_pictures
from tests.data.test_image_folder import CNN
from tests.supervised.conftest import QUIET

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # Torch warns of its own code, and of what its compiler for a GPU does not do.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
CUDA = torch.device("cuda", 0)


class Rows(Dataset[tuple[Tensor, int]]):
    """Rows of one number each, a megabyte long."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1 << 18,), float(index)), index


def batches(dataset: object, device: torch.device, **changed: Any) -> Any:
    options = {"batch_size": 4, "shuffle": True, "drop_last": False, "workers": 0, "seed": 3}
    return make_batches(dataset, device=device, **{**options, **changed})


def busy() -> None:
    """Give the current stream some tenths of a second of work; the host does not wait for it."""
    torch.cuda._sleep(400_000_000)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_as_on_the_cpu_while_the_device_lags_behind(workers: int) -> None:
    """Were memory reused too early, or a copy not waited for, the late sums would be of other rows."""
    here, there = batches(Rows(), torch.device("cpu")), batches(Rows(), CUDA, workers=workers)
    for epoch in (0, 1):
        here.start(epoch)
        there.start(epoch)
        expected, found = [], []
        while not here.has_ended():
            expected.append(here.next()[0].sum(1))
            busy()
            inputs, labels = there.next()
            assert inputs.device == labels.device == CUDA
            found.append(inputs.sum(1))
            del inputs
        assert there.has_ended()
        assert torch.equal(torch.cat(found).cpu(), torch.cat(expected))
    there.close()


def test_the_host_does_not_wait_for_the_device_to_upload() -> None:
    queue = UploadQueue(CUDA)

    def put_three() -> None:
        for number in range(3):
            queue.put({"x": torch.full((1 << 20,), float(number)), "y": [torch.tensor(number)]})

    # The first time memory is asked of the driver, which may wait.
    put_three()
    assert [queue.take()["y"][0].item() for _ in range(3)] == [0, 1, 2]
    torch.cuda.synchronize()
    busy()
    done = torch.cuda.Event()
    done.record()
    torch.cuda.set_sync_debug_mode("error")
    try:
        put_three()
        first = queue.take()["x"]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not done.query(), "the host waited until the device had nothing left to do"
    assert first.sum().item() == 0.0
    assert queue.take()["y"][0].item() == 1
    assert len(queue) == 1


def test_the_copy_runs_while_the_device_computes() -> None:
    # A driver has few hardware queues, so the stream of one queue may share that of the computation.
    assert any(is_copied_meanwhile() for _ in range(4)), "every copy waited for the computation"


def is_copied_meanwhile() -> bool:
    queue = UploadQueue(CUDA)
    queue.put(torch.ones(1 << 20))
    queue.take()
    torch.cuda.synchronize()
    computed = torch.cuda.Event()
    busy()
    computed.record()
    queue.put(torch.ones(1 << 20))
    queue._waiting[0][1].synchronize()
    return not computed.query()


def test_what_lies_on_the_device_already_is_left_there() -> None:
    queue = UploadQueue(CUDA)
    given = torch.arange(5, device=CUDA)
    queue.put([given, torch.arange(5)])
    found = queue.take()
    assert found[0].data_ptr() == given.data_ptr()
    assert torch.equal(found[0], found[1])


def test_a_resume_in_the_middle_of_an_epoch_gives_the_remaining_batches() -> None:
    data = batches(Rows(), CUDA, workers=2)
    data.start(1)
    seen = []
    for _ in range(15):
        state = data.state_dict()
        seen.append((state, data.next()[1].tolist()))
    assert data.has_ended()
    for place in (0, 4, 14):
        again = batches(Rows(), CUDA)
        again.load_state_dict(seen[place][0])
        assert [again.next()[1].tolist() for _ in range(15 - place)] == [
            labels for _, labels in seen[place:]
        ]
    data.close()


def test_pictures_are_normalised_on_the_device_as_on_the_cpu(tmp_path: Path) -> None:
    dataset = load(write_pictures(tmp_path / "pets")).train
    here, there = batches(dataset, torch.device("cpu")), batches(dataset, CUDA, workers=2)
    here.start(0)
    there.start(0)
    while not here.has_ended():
        expected, found = here.next(), there.next()
        assert found[0].dtype == torch.float32
        torch.testing.assert_close(found[0].cpu(), expected[0], atol=1e-6, rtol=1e-6)
        assert torch.equal(found[1].cpu(), expected[1])
    there.close()


def make(section: dict[str, Any], **changed: Any) -> Any:
    config = ludus.example("supervised").replace(
        **{
            "data": section, "model": CNN, "batch_size": 4, "max_epochs": 2, "engine": "graph",
            "drop_last": True, "evaluation.patience": None, "evaluation.keep": 0,
            # By auto two runs may choose differently, as they time themselves.
            "memory_format": "contiguous",
            "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0}, **QUIET,
            "settings.device": "cuda", **changed,
        }
    )  # fmt: skip
    return ludus.build_trainer(config)


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_a_run_on_pictures_with_workers_killed_anywhere_is_exact_on_a_gpu(
    engine: str, tmp_path: Path
) -> None:
    section = {**write_pictures(tmp_path / "pets", 40), "broken": "skip"}
    truncate(tmp_path / "pets" / "dog" / "007.png")
    changed = {"settings.workers": 2, "engine": engine}
    trainers.check_kill_anywhere(lambda: make(section, **changed), tmp_path / "runs", max_kills=2)
