"""Batches of a user's loader: an epoch and a position."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from ludus.data.batches.loader import LoaderBatches
from ludus.data.batches.memory import make_batches


def make() -> LoaderBatches:
    loader = DataLoader(list(range(20)), batch_size=3, shuffle=True)
    return make_batches(
        loader,
        batch_size=3,
        shuffle=True,
        drop_last=False,
        workers=0,
        seed=1,
        device=torch.device("cpu"),
    )


def use(batches: LoaderBatches) -> None:
    if batches.epoch < 0:
        batches.start(0)
    for _ in range(2):
        batches.next()
