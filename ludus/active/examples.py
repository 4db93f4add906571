"""The examples of a pool by row, from tensors in memory or any map-style data set.

Shapes: N examples, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ludus.core.errors import ConfigError, LudusError
from ludus.core.object_walker import digest_of
from ludus.core.repeated import Repeated
from ludus.data.batches.file_data import FileDataset
from ludus.data.batches.seeded_loader import SeededDataset, is_same, spread
from ludus.data.batches.splits import Examples
from ludus.data.upload import to_device
from ludus.seeds import derive, forked

Collate = Callable[[Any], Any]


class PoolExamples:
    """Inputs by row, and the targets that the data has, if it has any.

    An example is `inputs`, or `(inputs, target)`; inputs are a tensor, or anything that torch, or the
    collate_fn of the given DataLoader, can batch. Data in memory is moved to the device; any other data
    set is read batch by batch, so it may be larger than memory. Randomness in an example, such as a random
    crop, depends on (seed, epoch, row) alone, in every process: training sees another crop in each epoch,
    strategies and oracles always see the same one.
    """

    def __init__(self, source: object, *, device: torch.device, workers: int, seed: int) -> None:
        self.device = device
        self._workers = workers
        self.dataset, collate = _dataset_of(source)
        self._collate = CollateInputs(collate)
        self._seed = seed
        self.size = len(self.dataset)  # type: ignore[arg-type]
        if self.size == 0:
            raise ConfigError("the pool is empty; give one example at least")
        self._tensors: Sequence[Tensor] | None = None
        tensors = getattr(self.dataset, "tensors", None)
        is_plain = type(self.dataset) in (Examples, torch.utils.data.TensorDataset)
        if is_plain and collate is default_collate:
            self._tensors = [tensor.to(device) for tensor in tensors or ()]
        self._repeated = Repeated(None if workers or self._tensors is not None else self._ask)
        # Files opened at the first read here must not be shared with the worker processes.
        self._here = apart(self.dataset) if workers else self.dataset
        # Read here, so that a mistake in the data is reported before the first query.
        first = self._item(0)
        self.has_targets = isinstance(first, tuple | list) and len(first) > 1

    def _item(self, row: int) -> Any:
        if self._tensors is not None:
            return tuple(tensor[row] for tensor in self._tensors)
        with forked():
            return read_or_raise(SeededRows(self._here, self._seed, None)[row])

    def inputs(self, rows_B: Tensor) -> Any:
        """Return the inputs of these rows on the device, as read outside training epochs."""
        return self._read(rows_B, None)

    def _read(self, rows_B: Tensor, epoch: int | None) -> Any:
        if self._tensors is not None:
            return self._tensors[0].index_select(0, rows_B.to(self.device))
        seeded = SeededRows(self._here, self._seed, epoch)
        with forked():
            found = self._collate([seeded[row] for row in rows_B.tolist()])
        return self._on_device(read_or_raise(found))

    def _on_device(self, inputs: object) -> Any:
        found = to_device(inputs, self.device)
        return self.dataset.finished(found) if isinstance(self.dataset, FileDataset) else found

    def targets(self, rows_B: Tensor) -> Tensor:
        """Return the targets that the data has for these rows, on the CPU."""
        if not self.has_targets:
            raise ConfigError(
                "the data has no targets, so they cannot be looked up; use oracle.kind human, or give the"
                " trainer an oracle"
            )
        if self._tensors is not None:
            return self._tensors[1].index_select(0, rows_B.to(self.device)).cpu()
        return torch.stack([self._target(int(row)) for row in rows_B])

    def _target(self, row: int) -> Tensor:
        found = self._item(row)[1]
        try:
            target = torch.as_tensor(found)
        except (TypeError, ValueError, RuntimeError):
            target = torch.empty(0)
        if target.numel() != 1:
            raise LudusError(
                f"the target of example {row} of the pool is {repr(found)[:60]}; give one number for each"
                " example"
            )
        return target.reshape(())

    @property
    def targets_in_memory(self) -> Tensor | None:
        """All targets, if they are in memory."""
        return None if self._tensors is None or not self.has_targets else self._tensors[1].cpu()

    def stream(self, rows: Tensor, *, batch_size: int) -> Iterator[tuple[Tensor, Any]]:
        """Return batches of these rows and their inputs on the device."""
        pieces = rows.split(batch_size) if len(rows) else ()
        return zip(pieces, self.batches(pieces, epoch=None), strict=True)

    def batches(self, pieces: Sequence[Tensor], *, epoch: int | None) -> Iterator[Any]:
        """Return the inputs of each batch of rows on the device, as read in this epoch.

        Worker processes, if any, prefetch; the global generators are not changed.
        """
        if self._tensors is not None or not self._workers or not pieces:
            return (self._read(rows_B, epoch) for rows_B in pieces)
        loader: DataLoader[Any] = DataLoader(
            SeededRows(self.dataset, self._seed, epoch),
            batch_sampler=[rows_B.tolist() for rows_B in pieces],
            num_workers=self._workers,
            collate_fn=self._collate,
        )
        with forked(derive(self._seed, "pool")):
            found = iter(loader)
        return (self._on_device(read_or_raise(batch)) for batch in found)

    def ask_twice(self) -> str | None:
        """Return a reason if two reads of the same examples differ, else None."""
        if self._tensors is not None:
            return None
        first = self._ask()
        if is_same(first, self._ask()):
            self._repeated.begin(digest_of(first))
            return None
        return (
            f"the pool, a {type(self.dataset).__name__}, asked twice for the same examples, gave different"
            " ones: it keeps a generator or a count of its own; draw from the global generators of torch,"
            " NumPy or Python, which are reseeded for each example"
        )

    def _ask(self) -> Any:
        return self._read(torch.tensor(spread(self.size)), 0)

    def look_again(self) -> None:
        """Read the same examples once more, if it is time."""
        self._repeated.look()

    def digest(self) -> str | None:
        """Return a digest of the pool, or of some examples spread over it."""
        if self._tensors is not None:
            return digest_of(self._tensors)
        found = self._repeated.digest
        is_known = isinstance(self.dataset, FileDataset) and found is not None
        return digest_of([found, self.dataset.identity()]) if is_known else found  # type: ignore[attr-defined]

    def news(self) -> Sequence[str]:
        """Return the problems found with the data's files since the last call."""
        return self._here.news() if isinstance(self._here, FileDataset) else ()

    def changed_later(self) -> Sequence[str]:
        """Return the reasons if the pool's examples changed during the run."""
        if not self._repeated.has_changed:
            return ()
        return (
            f"the pool, a {type(self.dataset).__name__}, asked for the same examples in a later epoch, gave"
            " different ones: it keeps a generator or a count of its own, which is not saved",
        )


def _dataset_of(source: object) -> tuple[Dataset[Any], Collate]:
    """Return a map-style data set and its collate function."""
    collate: Collate = default_collate
    if callable(source) and not isinstance(source, Dataset | DataLoader):
        source = source()
    if isinstance(source, DataLoader):
        # Without either it does not batch, and its collate_fn converts single examples.
        is_batched = source.batch_size is not None or source.batch_sampler is not None
        collate = source.collate_fn if is_batched else default_collate
        source = source.dataset
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset):
        if not hasattr(source, "__len__"):
            raise ConfigError(
                f"the pool, a {type(source).__name__}, has no length; give it __len__"
            )
        return source, collate
    raise ConfigError(
        f"a {type(source).__name__} cannot be a pool: its examples are asked for by row; give a Dataset"
        " with __getitem__ and __len__, or a DataLoader over one"
    )


def apart(dataset: Dataset[Any]) -> Dataset[Any]:
    """Return a copy of a data set and of those it wraps: the same data, a separate state."""
    found = copy(dataset)
    for name, value in list(vars(found).items()):
        if isinstance(value, Dataset):
            setattr(found, name, apart(value))
        elif isinstance(value, list) and any(isinstance(one, Dataset) for one in value):
            setattr(found, name, [apart(one) if isinstance(one, Dataset) else one for one in value])
    return found


class Unread:
    """The reason of a failed read: an error raised in a worker process would carry its traceback."""

    def __init__(self, why: str) -> None:
        self.why = why


def read_or_raise(found: object) -> Any:
    """Return the result of a read; raise LudusError if it failed."""
    if isinstance(found, Unread):
        raise LudusError(found.why)
    return found


class SeededRows(Dataset[Any]):
    """The examples of a data set, or `Unread`; their randomness depends on (seed, epoch, row) alone.

    It sets the global generators: a caller in the process of the run must restore them.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, epoch: int | None) -> None:
        """`epoch` is None outside training epochs."""
        self._seeded = SeededDataset(dataset, seed, -1 if epoch is None else epoch)

    def __getitem__(self, row: int) -> Any:
        try:
            return self._seeded[row]
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            return Unread(
                f"example {row} of the pool cannot be read: {type(error).__name__}: {last_line(error)}; mend"
                " the data set and resume: what was labelled is kept"
            )


class CollateInputs:
    """Collates the inputs of some examples into a batch, or returns `Unread`."""

    def __init__(self, given: Collate) -> None:
        """`given` is torch's collate function, or the user's, which gets whole examples."""
        self._given = given

    def __call__(self, items: Sequence[object]) -> Any:
        """Return the inputs alone."""
        for item in items:
            if isinstance(item, Unread):
                return item
        try:
            if self._given is default_collate:
                return default_collate([inputs_of(item) for item in items])
            return inputs_of(self._given(list(items)))
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            return Unread(
                f"{len(items)} examples of the pool do not make a batch: {last_line(error)}; let the data"
                " set return inputs of one shape, or give a DataLoader with a collate_fn that makes it so"
            )


def inputs_of(item: object) -> object:
    """Return the inputs of an example, which is inputs alone, or inputs and a target."""
    return item[0] if isinstance(item, tuple | list) else item


def last_line(error: Exception) -> str:
    """Return the last line of an error of the user's code."""
    return (str(error).strip().splitlines() or [""])[-1][:300]
