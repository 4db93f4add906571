"""A learner whose network torch's DistributedDataParallel calls takes the step of the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam

ADAM = Adam(kind="adam", learning_rate=0.01, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)
RATE = torch.tensor(0.01)


def learner(*, is_parallel: bool) -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    called = DistributedDataParallel(net) if is_parallel else None
    groups = [Group("body", ("0",), rate=0.1)]
    return Learner(net, ADAM, max_grad_norm=0.5, called=called, groups=groups)


def step(own: Learner, batch: Tensor) -> None:
    own.step(lambda forward: ((forward(batch) - 1).square().mean(), ()), RATE)


def work(rank: int, folder: str) -> None:
    """Learn from one half of every batch, and alone from the whole; compare."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    parallel, alone = learner(is_parallel=True), learner(is_parallel=False)
    for number in range(4):
        whole = torch.randn(16, 3, generator=torch.Generator().manual_seed(number))
        step(parallel, whole.chunk(2)[rank])
        step(alone, whole)
    torch.testing.assert_close(parallel.weights(), alone.weights(), rtol=1e-4, atol=1e-6)
    # The destructor of gloo's group joins its threads with the GIL held, which these may want to let go of
    # their last tensors: once in three it waits for ever. Both have compared, so the process ends here.
    dist.barrier()
    os._exit(0)


def test_two_processes_with_half_a_batch_each_learn_as_one_with_all_of_it(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "OMP_NUM_THREADS": "1",
    }
    code = "import sys; from tests.nn.test_data_parallel import work; work(int(sys.argv[1]), sys.argv[2])"
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(rank), str(tmp_path)], env=environment)
        for rank in range(2)
    ]
    try:
        assert [process.wait(600) for process in both] == [0, 0]
    finally:
        for process in both:
            process.kill()
            process.wait()
