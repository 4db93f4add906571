"""A map-style data set's loader rebuilt over the rest of an epoch, with every example seeded.

An example's draws from the global generators depend on (seed, epoch, index) alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from ludus.core.errors import LudusError
from ludus.seeds import derive, forked, generator

_NUM_LISTED = 4096
_NUM_ASKED = 16
"""The number of examples that are read more than once: enough for a random augmentation to show."""


class _FromPosition(Sampler[int]):
    """The remaining rows of one epoch."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[int]:
        # Converted to Python ints in pieces: all rows of a large data set would take a lot of memory.
        for piece in self._rows.split(_NUM_LISTED):
            yield from piece.tolist()

    def __len__(self) -> int:
        return len(self._rows)


class SeededDataset(Dataset[Any]):
    """Gives every example the same random augmentation, whichever process loads it."""

    def __init__(self, dataset: Dataset[Any], seed: int, epoch: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        key = derive(self._seed, f"example/{self._epoch}", index)
        # Not torch.manual_seed, which would reach for the GPU at every example.
        torch.default_generator.manual_seed(key)
        np.random.seed(key % 2**32)
        random.seed(key)
        return self._dataset[index]


def remaining(loader: DataLoader[Any], seed: int, epoch: int, position: int) -> DataLoader[Any]:
    """Return the same loader over the rest of one epoch."""
    count = len(loader.dataset)  # type: ignore[arg-type]
    if isinstance(loader.sampler, RandomSampler):
        order = torch.randperm(count, generator=generator(seed, "order", epoch))
    else:
        order = torch.arange(count)
    assert loader.batch_size is not None
    dataset, rows = (
        SeededDataset(loader.dataset, seed, epoch),
        order[position * loader.batch_size :],
    )
    size, workers = loader.batch_size, loader.num_workers
    return _like(loader, dataset, rows, seed, epoch, batch_size=size, num_workers=workers)


def _like(
    loader: DataLoader[Any],
    dataset: Dataset[Any],
    rows: Tensor,
    seed: int,
    epoch: int,
    *,
    batch_size: int,
    num_workers: int,
) -> DataLoader[Any]:
    """Return a loader like this one over some rows of a data set."""
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=_FromPosition(rows),
        num_workers=num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout if num_workers else 0,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if num_workers else None,
        prefetch_factor=loader.prefetch_factor,
        generator=generator(seed, "workers", epoch),
    )


def spread(count: int, most: int = _NUM_ASKED) -> list[int]:
    """Return at most this many indices, spread evenly over `count`, including the first and the last."""
    asked = min(count, most)
    return [place * (count - 1) // max(asked - 1, 1) for place in range(asked)]


def answers(loader: DataLoader[Any], seed: int, *, times: int) -> list[Any]:
    """Return the data set's examples at some spread indices, read this many times.

    All are read in one process, a worker if there are workers: a data set that opens its file on first use
    must not do so here.
    """
    rows = spread(len(loader.dataset))  # type: ignore[arg-type]
    dataset, workers = SeededDataset(loader.dataset, seed, 0), min(loader.num_workers, 1)
    asked = torch.tensor(rows * times, dtype=torch.int64)

    def given(batch_size: int) -> list[Any]:
        again = _like(loader, dataset, asked, seed, 0, batch_size=batch_size, num_workers=workers)
        with forked(0):
            return list(again)

    try:
        return given(len(rows))
    except Exception:
        # Examples of different sizes cannot be collated into one batch.
        found = given(1)
    return [found[start : start + len(rows)] for start in range(0, len(found), len(rows))]


def sentence_of(error: Exception) -> Exception:
    """Return a worker's LudusError without its traceback, and a lost worker as a sentence.

    Any other error is returned unchanged.
    """
    text = str(error)
    if text.startswith("DataLoader worker (pid"):
        return LudusError(
            f"a process that loads data is gone: {text.splitlines()[0].rstrip('. ')}; if memory ran out,"
            " lower settings.workers or batch_size; then resume the run"
        )
    before, name, sentence = text.rpartition(f"{type(error).__name__}: ")
    if not isinstance(error, LudusError) or "DataLoader worker process" not in before or not name:
        return error
    return type(error)(sentence.strip())


def is_same(first: Any, second: Any) -> bool:
    """Return whether two batches are bit-identical; what cannot be compared counts as identical."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        first, second = first.detach().cpu().numpy(), second.detach().cpu().numpy()
    if isinstance(first, np.ndarray):
        # As bytes, since NaN differs from itself.
        is_like = first.shape == second.shape and first.dtype == second.dtype
        return bool(is_like and (first.dtype.hasobject or first.tobytes() == second.tobytes()))
    if isinstance(first, Mapping):
        return list(first) == list(second) and all(is_same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(is_same, first, second))
    if isinstance(first, bool | int | float | str | bytes):
        return repr(first) == repr(second)
    return not hasattr(first, "__dict__") or is_same(vars(first), vars(second))
