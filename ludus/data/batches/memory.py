"""Batches whose order depends on (seed, epoch) alone, so that a run can resume at any position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    default_collate,
)

from ludus.core import states
from ludus.core.errors import ConfigError
from ludus.core.object_walker import digest_of
from ludus.data.batches.loader import LoaderBatches, is_indexed
from ludus.data.batches.splits import Examples
from ludus.data.upload import upload
from ludus.seeds import generator


class Batches(Protocol):
    """A stream of batches, epoch after epoch; a part, whose state is an epoch and a position."""

    epoch: int
    """The epoch that was started last; -1 before the first."""
    position: int
    """The number of batches of this epoch that have been taken."""

    @property
    def is_repeatable(self) -> bool:
        """Whether reading the first batch consumes nothing."""
        return True

    def start(self, epoch: int) -> None:
        """Begin an epoch, in its own order."""

    def next(self) -> Any:
        """Return the next batch of this epoch."""

    def length(self) -> int | None:
        """Return the number of batches in an epoch; None if only its end tells."""

    def has_ended(self) -> bool:
        """Return whether this epoch has no batch left."""

    def close(self) -> None:
        """Shut down the loading processes."""

    def ask_twice(self) -> str | None:
        """Return the problem if the same examples, read twice, differ."""
        return None

    def inexact_because(self) -> Sequence[str]:
        """Return why a resumed epoch may differ; empty if it does not."""
        return ()

    def changed_later(self) -> Sequence[str]:
        """Return the problem if the same examples differed in a later epoch."""
        return ()

    def news(self) -> Sequence[str]:
        """Return the problems found with files since the last call, one sentence each."""
        return ()

    def digest(self) -> str | None:
        """Return a digest of the data, after they were read twice; None if there is none."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


# The number of batches each worker prepares ahead of use.
_PREFETCH = 2
# An epoch of up to this many bytes is shuffled whole when it starts, so that a batch is only a view.
_SMALL = 256 << 20


class MemoryBatches(Batches):
    """Batches of examples in memory, gathered on their device; the same examples at every reading."""

    def __init__(
        self,
        examples: Examples,
        *,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        seed: int,
        device: torch.device,
    ) -> None:
        self._tensors = [tensor.to(device) for tensor in examples.tensors]
        self._size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        count = len(examples)
        self._length = count // batch_size if drop_last else -(-count // batch_size)
        if count == 0:
            raise ConfigError("there are no examples; give one at least")
        if self._length == 0:
            raise ConfigError(
                f"batch_size is {batch_size}, but there are {count} examples and drop_last is on;"
                f" use at most {count}"
            )
        self.epoch = -1
        self.position = 0
        self._is_small = sum(tensor.nbytes for tensor in self._tensors) <= _SMALL
        self._pieces: Sequence[Any] = ()

    def start(self, epoch: int) -> None:
        """Shuffle by (seed, epoch)."""
        self.epoch, self.position = epoch, 0
        count = len(self._tensors[0])
        if self._shuffle:
            order = torch.randperm(count, generator=generator(self._seed, "order", epoch))
        else:
            order = torch.arange(count)
        order = upload(order, self._tensors[0].device)
        if self._is_small:
            shuffled = [tensor.index_select(0, order).split(self._size) for tensor in self._tensors]
            self._pieces = list(zip(*shuffled, strict=True))
        else:
            self._pieces = order.split(self._size)

    def next(self) -> tuple[Tensor, ...]:
        """Return the next batch."""
        piece = self._pieces[self.position]
        self.position += 1
        if self._is_small:
            return piece  # type: ignore[no-any-return]
        return tuple([tensor.index_select(0, piece) for tensor in self._tensors])

    def length(self) -> int:
        return self._length

    def has_ended(self) -> bool:
        return self.position >= self._length

    def close(self) -> None:
        """Do nothing: no other process loads."""

    def digest(self) -> str | None:
        """Return a digest of the tensors."""
        return digest_of(self._tensors)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the order and the position."""
        states.check_keys(state, "epoch", "position")
        epoch = states.whole(state, "epoch", at_least=-1)
        position = states.whole(state, "position", at_most=self._length if epoch >= 0 else 0)
        if epoch >= 0:
            self.start(epoch)
        self.epoch, self.position = epoch, position


def make_batches(
    source: object,
    *,
    batch_size: int,
    shuffle: bool,
    drop_last: bool,
    workers: int,
    seed: int,
    device: torch.device,
) -> MemoryBatches | LoaderBatches:
    """Return batches of a Dataset, a DataLoader, or a function that returns one of them."""
    if callable(source) and not isinstance(source, Dataset | DataLoader):
        source = source()
    if (
        isinstance(source, DataLoader)
        and type(source.dataset) is TensorDataset
        and source.collate_fn is default_collate
        and is_indexed(source)
    ):
        # Such a loader would fetch its rows one by one to build the same batches.
        assert source.batch_size is not None
        batch_size, drop_last = source.batch_size, source.drop_last
        shuffle = isinstance(source.sampler, RandomSampler)
        source = source.dataset
    if type(source) is TensorDataset:
        source = Examples(*source.tensors)
    if isinstance(source, Examples):
        return MemoryBatches(
            source,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            device=device,
        )
    if isinstance(source, Dataset):
        is_stream = isinstance(source, IterableDataset)
        loader: DataLoader[Any] = DataLoader(
            source,
            batch_size=batch_size,
            shuffle=None if is_stream else shuffle,
            drop_last=drop_last,
            num_workers=workers,
            collate_fn=default_collate,
            # A thread then copies batches to pinned memory, from which a GPU copies asynchronously.
            pin_memory=device.type == "cuda" and workers > 0,
            prefetch_factor=_PREFETCH if workers else None,
        )
        return LoaderBatches(loader, seed=seed, device=device)
    _check_loader(source)
    return LoaderBatches(source, seed=seed, device=device)


def _check_loader(source: object) -> None:
    name = type(source).__name__
    if hasattr(source, "__next__"):
        raise ConfigError(
            f"a {name} can be gone through only once; give a loader that starts over each epoch"
        )
    is_table = isinstance(source, list | tuple) and all(isinstance(x, Tensor) for x in source)
    if isinstance(source, Tensor) or is_table:
        raise ConfigError(
            f"a {name} of examples is not yet data; wrap it: TensorDataset(inputs, targets)"
        )
    if not hasattr(source, "__iter__") or isinstance(source, str | bytes | Mapping):
        raise ConfigError(
            f"a {name} is not data; give a Dataset, a DataLoader, or a function that returns one"
        )
