"""Batches in memory: an epoch and a position."""

from __future__ import annotations

import torch

from ludus.data.batches.memory import MemoryBatches
from ludus.data.batches.splits import Examples


def make() -> MemoryBatches:
    examples = Examples(torch.arange(20.0), torch.arange(20))
    return MemoryBatches(
        examples,
        batch_size=3,
        shuffle=True,
        drop_last=False,
        seed=1,
        device=torch.device("cpu"),
    )


def use(batches: MemoryBatches) -> None:
    if batches.epoch < 0 or batches.has_ended():
        batches.start(batches.epoch + 1)
    for _ in range(2):
        batches.next()
