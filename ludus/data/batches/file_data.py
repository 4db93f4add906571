"""A data set that reads its examples from files, and what it says of them to the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset


class FileDataset(Dataset[Any]):
    """Examples by index, read when they are asked for, in this process or in workers.

    A random choice in an example, a crop say, is drawn from the global generators, which are set by
    (seed, epoch, index) before it is read, so the number of workers changes nothing. The other methods
    are called in the process that trains.

    workers                  this process           the device
      [index], collated  ->    received         ->    finished
    """

    def __len__(self) -> int:
        """Return how many examples there are."""
        raise NotImplementedError

    def identity(self) -> str:
        """Return a hash that other data would not have, found in bounded time."""
        raise NotImplementedError

    def received(self, batch: object) -> Any:
        """Return a batch as it goes to the device: all that was only for the host is taken out."""
        return batch

    def finished(self, inputs: Tensor) -> Tensor:
        """Return the inputs of a batch on the device as the network takes them."""
        return inputs

    def news(self) -> Sequence[str]:
        """Return what was found wrong with the files since the last call, one sentence each."""
        return ()
