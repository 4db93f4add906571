"""Minibatches: the rows of each update; every row once per epoch, reshuffled each epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.arena.parameters import RlHyperParameters
from ludus.seeds import generator


class Minibatches:
    """Divides the rows; the order follows from the seed, the iteration and the epoch."""

    def __init__(
        self, config: RlHyperParameters, device: torch.device, *, together: int = 1
    ) -> None:
        """`together` consecutive rows stay together, in their order: the steps of an env, for example."""
        self._seed, self._epochs = config.seed, config.rl.num_epochs
        self._num_rows, self._size = config.frames_per_batch, config.rl.minibatch_size
        self.count = self._num_rows // self._size
        self._device, self._together = device, together
        self._key = (-1, -1)
        self._order = torch.zeros(0, dtype=torch.int64)

    def __call__(self, iteration: int, epoch: int, index: int) -> Tensor:
        """Return (M,) the indices of one minibatch."""
        if self._key != (iteration, epoch):
            source = generator(self._seed, "arena/minibatches", iteration * self._epochs + epoch)
            firsts = torch.randperm(self._num_rows // self._together, generator=source)
            order = firsts[:, None] * self._together + torch.arange(self._together)
            self._order = order.flatten().to(self._device, non_blocking=True)
            self._key = (iteration, epoch)
        return self._order[index * self._size : (index + 1) * self._size]
