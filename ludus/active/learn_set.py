"""The labelled examples as batches, more of them after every round.

Shapes: L labelled examples, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.pool import Pool
from ludus.core import states
from ludus.data.upload import upload
from ludus.seeds import generator


class LearnSet:
    """Batches of what the pool has labels for, in an order that depends on (seed, epoch) alone."""

    is_repeatable = True

    def __init__(
        self,
        examples: PoolExamples,
        pool: Pool,
        *,
        batch_size: int,
        drop_last: bool,
        seed: int,
        first: int,
    ) -> None:
        """`first` is how many examples the first round labels.

        Before they are, the first rows of the pool stand in for them, with labels 0: for those who look at
        a batch before the run begins.
        """
        self._examples, self._pool = examples, pool
        self._size, self._drop_last, self._seed = batch_size, drop_last, seed
        self._first = first
        self.epoch = -1
        self.position = 0
        self._pieces: Sequence[Tensor] = ()
        self._rows_L, self._labels_L = pool.labelled, pool.labels

    def start(self, epoch: int) -> None:
        """Shuffle what is labelled now by (seed, epoch)."""
        self.epoch, self.position = epoch, 0
        rows_L, labels_L = self._pool.labelled, self._pool.labels
        if not len(rows_L):
            rows_L = torch.arange(self._first)
            labels_L = labels_L.new_zeros(self._first, *labels_L.shape[1:])
        order_L = torch.randperm(len(rows_L), generator=generator(self._seed, "order", epoch))
        self._pieces = order_L.split(self._size)
        self._rows_L, self._labels_L = rows_L, upload(labels_L, self._examples.device)

    def next(self) -> tuple[Any, Tensor]:
        """Return the next batch: inputs and labels."""
        places_B = self._pieces[self.position]
        self.position += 1
        inputs = self._examples.inputs(self._rows_L[places_B])
        return inputs, self._labels_L.index_select(0, places_B.to(self._labels_L.device))

    def length(self) -> int:
        """Return how many batches an epoch has now; a first one even if it is not full."""
        count = self._pool.num_labelled or self._first
        whole = count // self._size if self._drop_last else -(-count // self._size)
        return max(whole, 1)

    def has_ended(self) -> bool:
        return self.position >= min(self.length(), len(self._pieces))

    def close(self) -> None:
        """Nothing loads but this process."""

    def ask_twice(self) -> str | None:
        """Return None: examples are drawn by row, each with generators of its own."""
        return None

    def inexact_because(self) -> Sequence[str]:
        return ()

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where it stood; the pool has been loaded before."""
        states.check_keys(state, "epoch", "position")
        epoch = states.whole(state, "epoch", at_least=-1)
        position = states.whole(state, "position", at_most=self.length() if epoch >= 0 else 0)
        if epoch >= 0:
            self.start(epoch)
        self.epoch, self.position = epoch, position
