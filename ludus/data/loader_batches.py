"""Batches of a user's own DataLoader, taken up again at the position where a run stood."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from ludus.run.seeds import derive, forked, generator


class _FromPosition(Sampler[int]):
    """The rows of one epoch that are still to come."""

    def __init__(self, rows: list[int]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _SeededDataset(Dataset[Any]):
    """Gives every example the same random augmentation, whichever process loads it."""

    def __init__(self, dataset: Any, seed: int, epoch: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        key = derive(self._seed, f"example/{self._epoch}", index)
        torch.manual_seed(key)
        np.random.seed(key % 2**32)
        random.seed(key)
        return self._dataset[index]


class LoaderBatches:
    """Batches of a user's DataLoader.

    A loader over a map-style data set in plain or shuffled order is taken up at its exact position. A
    loader with a state of its own (`state_dict`) is asked for it. Any other is run again from the
    start of the epoch to the position, which is exact only if it repeats itself, and is said so.
    """

    def __init__(self, make: Callable[[], Any], *, seed: int, device: torch.device) -> None:
        self._loader = make()
        self._seed = seed
        self._device = device
        self.epoch = -1
        self.position = 0
        self._iterator: Iterator[Any] | None = None
        self._ahead: list[Any] = []
        self._is_stateful = hasattr(self._loader, "state_dict") and hasattr(
            self._loader, "load_state_dict"
        )
        self._is_indexed = not self._is_stateful and is_indexed(self._loader)

    def start(self, epoch: int) -> None:
        """Begin the epoch at its first batch."""
        self.epoch, self.position, self._ahead = epoch, 0, []
        self._iterator = self._iterate(0)

    def _iterate(self, position: int) -> Iterator[Any]:
        if self._is_indexed:
            return iter(_rebuilt(self._loader, self._seed, self.epoch, position))
        if not self._is_stateful:
            loader_generator = getattr(self._loader, "generator", None)
            if isinstance(loader_generator, torch.Generator):
                loader_generator.manual_seed(derive(self._seed, "order", self.epoch))
        with forked(derive(self._seed, "order", self.epoch)):
            iterator: Iterator[Any] = iter(self._loader)
            for _ in range(0 if self._is_stateful else position):
                next(iterator)
            return iterator

    def next(self) -> Any:
        """Return the next batch, on the device."""
        batch = self._ahead.pop() if self._ahead else self._draw()
        self.position += 1
        return to_device(batch, self._device)

    def _draw(self) -> Any:
        assert self._iterator is not None
        # Augmentation draws from the global generators, which belong to the run.
        with forked(derive(self._seed, f"batch/{self.epoch}", self.position)):
            return next(self._iterator)

    def length(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None

    def has_ended(self) -> bool:
        """Return whether the epoch is over; without a length this draws one batch ahead."""
        length = self.length()
        if length is not None:
            return self.position >= length
        if not self._ahead:
            try:
                self._ahead.append(self._draw())
            except StopIteration:
                return True
        return False

    def inexact_because(self) -> Sequence[str]:
        if self._is_indexed or self._is_stateful:
            return ()
        name = type(getattr(self._loader, "dataset", self._loader)).__name__
        return (
            f"the loader over {name} cannot be taken up at a position; it is run again from the start"
            " of the epoch, which is exact only if it repeats itself",
        )

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"epoch": self.epoch, "position": self.position}
        if self._is_stateful and self.epoch >= 0 and not self._ahead:
            state["loader"] = self._loader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where it stood."""
        self.epoch, self.position, self._ahead = state["epoch"], state["position"], []
        if self.epoch < 0:
            return
        if "loader" in state:
            self._loader.load_state_dict(state["loader"])
        self._iterator = self._iterate(self.position)


def is_indexed(loader: Any) -> bool:
    """Return whether the order of this loader can be computed from a seed."""
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and loader.batch_size is not None
        and type(loader.sampler) in (RandomSampler, SequentialSampler)
        and not getattr(loader.sampler, "replacement", False)
        and len(loader.sampler) == len(loader.dataset)  # type: ignore[arg-type]
    )


def _rebuilt(loader: DataLoader[Any], seed: int, epoch: int, position: int) -> DataLoader[Any]:
    """Return the same loader over what remains of one epoch."""
    count = len(loader.dataset)  # type: ignore[arg-type]
    if isinstance(loader.sampler, RandomSampler):
        order = torch.randperm(count, generator=generator(seed, "order", epoch)).tolist()
    else:
        order = list(range(count))
    assert loader.batch_size is not None
    return DataLoader(
        _SeededDataset(loader.dataset, seed, epoch),
        batch_size=loader.batch_size,
        sampler=_FromPosition(order[position * loader.batch_size :]),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        generator=generator(seed, "workers", epoch),
    )


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with all its tensors on the device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)([to_device(value, device) for value in batch])
    return batch
