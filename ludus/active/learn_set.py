"""Training batches of the labelled examples, which grow with every round.

Shapes: L labelled examples, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.pool import Pool
from ludus.core import states
from ludus.data.upload import upload
from ludus.seeds import generator


class LearnSet:
    """Batches of the labelled rows of the pool, in an order that depends on (seed, epoch) alone.

    A last batch of one example is merged into the one before it: sooner or later a round leaves one over,
    and batch norm cannot learn from it.
    """

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
        """`first` is the number of examples labelled in the first round.

        Until then the first rows of the pool replace them, with labels 0, for checks that read a batch
        before the run begins.
        """
        self._examples, self._pool = examples, pool
        self._size, self._drop_last, self._seed = batch_size, drop_last, seed
        self._first = first
        self.epoch = -1
        self.position = 0
        self._pieces: list[Tensor] = []
        # Read at the first batch: an epoch that is resumed at its end needs none.
        self._inputs: Iterator[Any] | None = None
        self._rows_L, self._labels_L = pool.labelled, pool.labels

    def start(self, epoch: int) -> None:
        """Shuffle the labelled rows by (seed, epoch)."""
        self.epoch, self.position, self._inputs = epoch, 0, None
        self._examples.look_again()
        rows_L, labels_L = self._pool.labelled, self._pool.labels
        if not len(rows_L):
            rows_L = torch.arange(self._first)
            labels_L = labels_L.new_zeros(self._first, *labels_L.shape[1:])
        order_L = torch.randperm(len(rows_L), generator=generator(self._seed, "order", epoch))
        self._pieces = list(order_L.split(self._size))
        if self._has_single(len(order_L)):
            single = self._pieces.pop()
            self._pieces[-1] = torch.cat([self._pieces[-1], single])
        self._rows_L, self._labels_L = rows_L, upload(labels_L, self._examples.device)

    def _has_single(self, count: int) -> bool:
        """Return whether this many examples leave a last batch of one, after others."""
        return not self._drop_last and count > self._size > 1 and count % self._size == 1

    def next(self) -> tuple[Any, Tensor]:
        """Return the next batch: inputs and labels."""
        if self._inputs is None:
            ahead = self._pieces[self.position : self.length()]
            rows = [self._rows_L[places_B] for places_B in ahead]
            self._inputs = self._examples.batches(rows, epoch=self.epoch)
        places_B, inputs = self._pieces[self.position], next(self._inputs)
        self.position += 1
        return inputs, self._labels_L.index_select(0, places_B.to(self._labels_L.device))

    def length(self) -> int:
        """Return the current number of batches per epoch; at least one, even if it is not full."""
        count = self._pool.num_labelled or self._first
        if self._drop_last or self._has_single(count):
            return max(count // self._size, 1)
        return -(-count // self._size)

    def has_ended(self) -> bool:
        return self.position >= min(self.length(), len(self._pieces))

    def close(self) -> None:
        """Stop the prefetching processes."""
        self._inputs = None

    def ask_twice(self) -> str | None:
        """Return a reason if two reads of the same examples of the pool differ, else None."""
        return self._examples.ask_twice()

    def digest(self) -> str | None:
        """Return the digest of the pool."""
        return self._examples.digest()

    def news(self) -> Sequence[str]:
        return self._examples.news()

    def changed_later(self) -> Sequence[str]:
        return self._examples.changed_later()

    def inexact_because(self) -> Sequence[str]:
        return self.changed_later()

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position; the pool has been loaded before."""
        states.check_keys(state, "epoch", "position")
        epoch = states.whole(state, "epoch", at_least=-1)
        position = states.whole(state, "position", at_most=self.length() if epoch >= 0 else 0)
        if epoch >= 0:
            self.start(epoch)
        self.epoch, self.position, self._inputs = epoch, position, None
