"""The examples of a pool, read by row: from tensors in memory, or from any map-style data set.

Shapes: N examples, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.loader import to_device
from ludus.data.batches.splits import Examples
from ludus.seeds import derive, forked


class PoolExamples:
    """Inputs by row, and the targets that the data has, if it has any.

    An example is `inputs`, or `(inputs, target)`; inputs are a tensor, or whatever torch, or the collate_fn
    of a DataLoader that was given, makes a batch of. What lies in memory is put on the device; any other
    data set is read batch by batch, so it may be larger than memory.
    """

    def __init__(self, source: object, *, device: torch.device, workers: int, seed: int) -> None:
        self.device = device
        self._workers = workers
        self.dataset, collate = _dataset_of(source)
        self._collate = _Collate(collate)
        self._seeded = _Seeded(self.dataset, seed)
        self._seed = seed
        self.size = len(self.dataset)  # type: ignore[arg-type]
        if self.size == 0:
            raise ConfigError("the pool is empty; give one example at least")
        self._tensors: Sequence[Tensor] | None = None
        tensors = getattr(self.dataset, "tensors", None)
        is_plain = type(self.dataset) in (Examples, torch.utils.data.TensorDataset)
        if is_plain and collate is default_collate:
            self._tensors = [tensor.to(device) for tensor in tensors or ()]
        # Looked at here, so that a mistake in the data is told before anything is asked for.
        self.has_targets = _has_target(self._item(0))

    def _item(self, row: int) -> Any:
        if self._tensors is not None:
            return tuple(tensor[row] for tensor in self._tensors)
        return self._seeded[row]

    def inputs(self, rows_B: Tensor) -> Any:
        """Return the inputs of these rows, on the device."""
        if self._tensors is not None:
            return self._tensors[0].index_select(0, rows_B.to(self.device))
        found = self._collate([self._item(int(row)) for row in rows_B])
        return to_device(found, self.device)

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
        """All targets, where they need not be read one by one."""
        is_here = self._tensors is not None and self.has_targets
        return self._tensors[1].cpu() if is_here and self._tensors is not None else None

    def stream(self, rows: Tensor, *, batch_size: int) -> Iterator[tuple[Tensor, Any]]:
        """Yield these rows, and their inputs on the device, some at a time."""
        if self._tensors is not None or not self._workers:
            for rows_B in rows.split(batch_size):
                yield rows_B, self.inputs(rows_B)
            return
        loader: DataLoader[Any] = DataLoader(
            Subset(self._seeded, rows.tolist()),
            batch_size=batch_size,
            num_workers=self._workers,
            collate_fn=self._collate,
        )
        with forked(derive(self._seed, "pool")):
            batches = iter(loader)
            for rows_B in rows.split(batch_size):
                try:
                    inputs = next(batches)
                except LudusError as error:
                    # In a worker it was said after the worker's own traceback.
                    raise LudusError(_last_line(error).partition("Error: ")[2]) from None
                yield rows_B, to_device(inputs, self.device)


class _Seeded(Dataset[Any]):
    """The examples of a data set, what is random in each drawn by its row alone, in any process."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __getitem__(self, row: int) -> Any:
        with forked(derive(self._seed, "example", row)):
            try:
                return self._dataset[row]
            except Exception as error:
                raise LudusError(
                    f"example {row} of the pool cannot be read: {type(error).__name__}:"
                    f" {_last_line(error)}; mend the data set and resume: what was labelled is kept"
                ) from error


class _Collate:
    """Makes a batch of inputs of some examples."""

    def __init__(self, given: Callable[[Any], Any]) -> None:
        """`given` is torch's, or one of the user's own, which is given whole examples."""
        self._given = given

    def __call__(self, items: Sequence[object]) -> Any:
        """Return the inputs alone."""
        try:
            if self._given is default_collate:
                return default_collate([_inputs_of(item) for item in items])
            return _inputs_of(self._given(list(items)))
        except Exception as error:
            raise LudusError(
                f"{len(items)} examples of the pool do not make a batch: {_last_line(error)}; let the data"
                " set return inputs of one shape, or give a DataLoader with a collate_fn that makes it so"
            ) from error


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[-1][:300]


def _dataset_of(source: object) -> tuple[Dataset[Any], Callable[[Any], Any]]:
    """Return a map-style data set, and what makes a batch of its examples."""
    collate: Callable[[Any], Any] = default_collate
    if callable(source) and not isinstance(source, Dataset | DataLoader):
        source = source()
    if isinstance(source, DataLoader):
        collate = source.collate_fn if source.batch_size is not None else default_collate
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


def _has_target(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) > 1


def _inputs_of(item: object) -> object:
    return item[0] if isinstance(item, tuple | list) else item
