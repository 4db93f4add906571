"""Seeded reading of examples by row, in this process or another: each row has its own generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

from ludus.core.errors import LudusError
from ludus.data.batches.seeded_loader import SeededDataset

Collate = Callable[[Any], Any]


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
