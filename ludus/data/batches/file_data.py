"""A data set that reads its examples from files, and its reports to the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset


class FileDataset(Dataset[Any]):
    """Examples by index, read on demand, in this process or in workers.

    A random choice in an example, such as a crop, is drawn from the global generators, which are seeded by
    (seed, epoch, index) before it is read, so the number of workers changes nothing. The other methods are
    called in the training process.

        workers                  this process           the device
          [index], collated  ->    received         ->    finished
    """

    def __len__(self) -> int:
        """Return the number of examples."""
        raise NotImplementedError

    def identity(self) -> str:
        """Return a hash that identifies the data, computed in bounded time."""
        raise NotImplementedError

    def received(self, batch: object) -> Any:
        """Return a batch as it goes to the device, without what is only for the host."""
        return batch

    def finished(self, inputs: Tensor) -> Tensor:
        """Return the inputs of a batch, on the device, in the form the network takes."""
        return inputs

    def news(self) -> Sequence[str]:
        """Return the problems found with the files since the last call, one sentence each."""
        return ()
