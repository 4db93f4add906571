"""The examples of a pool, read by row: from tensors in memory, or from any map-style data set.

Shapes: N examples, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from ludus.core.errors import ConfigError
from ludus.data.batches.loader import to_device
from ludus.data.batches.splits import Examples
from ludus.seeds import derive, forked


class PoolExamples:
    """Inputs by row, and the targets that the data has, if it has any.

    An example is `inputs`, or `(inputs, target)`; inputs are a tensor, or whatever torch can collate. What
    lies in memory is put on the device; any other data set is read batch by batch, so it may be larger
    than memory.
    """

    def __init__(self, source: object, *, device: torch.device, workers: int, seed: int) -> None:
        self.device = device
        self._workers = workers
        self._seed = seed
        self.dataset = _dataset_of(source)
        self.size = len(self.dataset)  # type: ignore[arg-type]
        if self.size == 0:
            raise ConfigError("the pool is empty; give one example at least")
        self._tensors: Sequence[Tensor] | None = None
        tensors = getattr(self.dataset, "tensors", None)
        if type(self.dataset) in (Examples, torch.utils.data.TensorDataset):
            self._tensors = [tensor.to(device) for tensor in tensors or ()]
        # Looked at here, so that a mistake in the data is told before anything is asked for.
        self.has_targets = _has_target(self._item(0))

    def _item(self, row: int) -> Any:
        if self._tensors is not None:
            return tuple(tensor[row] for tensor in self._tensors)
        with forked(derive(self._seed, "example", row)):
            return self.dataset[row]

    def inputs(self, rows_B: Tensor) -> Any:
        """Return the inputs of these rows, on the device."""
        if self._tensors is not None:
            return self._tensors[0].index_select(0, rows_B.to(self.device))
        items = [_inputs_of(self._item(int(row))) for row in rows_B]
        return to_device(default_collate(items), self.device)

    def targets(self, rows_B: Tensor) -> Tensor:
        """Return the targets that the data has for these rows, on the CPU."""
        if not self.has_targets:
            raise ConfigError(
                "the data has no targets, so they cannot be looked up; use oracle.kind human, or give the"
                " trainer an oracle"
            )
        if self._tensors is not None:
            return self._tensors[1].index_select(0, rows_B.to(self.device)).cpu()
        found = [torch.as_tensor(self._item(int(row))[1]) for row in rows_B]
        return torch.stack(found)

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
            Subset(self.dataset, rows.tolist()),
            batch_size=batch_size,
            num_workers=self._workers,
            collate_fn=lambda items: default_collate([_inputs_of(item) for item in items]),
        )
        with forked(derive(self._seed, "pool")):
            for rows_B, inputs in zip(rows.split(batch_size), loader, strict=True):
                yield rows_B, to_device(inputs, self.device)


def _dataset_of(source: object) -> Dataset[Any]:
    if callable(source) and not isinstance(source, Dataset | DataLoader):
        source = source()
    if isinstance(source, DataLoader):
        source = source.dataset
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset):
        if not hasattr(source, "__len__"):
            raise ConfigError(
                f"the pool, a {type(source).__name__}, has no length; give it __len__"
            )
        return source
    raise ConfigError(
        f"a {type(source).__name__} cannot be a pool: its examples are asked for by row; give a Dataset"
        " with __getitem__ and __len__, or a DataLoader over one"
    )


def _has_target(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) > 1


def _inputs_of(item: object) -> object:
    return item[0] if isinstance(item, tuple | list) else item
